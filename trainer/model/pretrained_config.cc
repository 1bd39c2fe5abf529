#include "trainer/model/pretrained_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "trainer/config/config.h"
#include "trainer/config/keys/key_rows.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/load/pretrained_files.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
using Values = PretrainedValues;

constexpr const char* kHowToMake = kHowToMakePretrained;

std::optional<Activation> activation_named(const std::string& name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  return std::nullopt;
}

std::vector<std::string> unsupported_in(const Json& config, const Values& values, int64_t n_embd) {
  std::vector<std::string> found =
      differences_from_fixed(config, {{"layer_norm_epsilon", 1e-5},
                                      {"scale_attn_weights", true},
                                      {"scale_attn_by_inverse_layer_idx", false},
                                      {"add_cross_attention", false},
                                      {"is_encoder_decoder", false}});
  const std::string activation = values.text("activation_function", "gelu_new");
  if (!activation_named(activation))
    found.push_back(fmt::format("activation_function is {}, not gelu or gelu_new", activation));
  const int64_t inner = values.number("n_inner", 4 * n_embd, 4 * kMostWidth);
  if (inner != 4 * n_embd)
    found.push_back(fmt::format("n_inner is {}, not 4 x n_embd = {}", inner, 4 * n_embd));
  return found;
}

template <class Model>
std::vector<std::string> size_differences(const PretrainedSizes& there, const Model& model,
                                          const Config& config) {
  std::vector<std::string> differences = there.unsupported;
  compare_value(differences, "n_layer", there.n_layer, model.n_layer);
  compare_value(differences, "n_head", there.n_head, model.n_head);
  compare_value(differences, "n_embd", there.n_embd, model.n_embd);
  if (config.positions() > there.positions) {
    const int64_t prompt = config.prompt_tuning.tokens;
    differences.push_back(fmt::format(
        "it has {} positions, data_config.block_size{} asks for {}{}", there.positions,
        prompt > 0
            ? fmt::format("={} after prompt_tuning.tokens={}", config.data.block_size, prompt)
            : "",
        config.positions(),
        there.positions > prompt
            ? fmt::format(": set data_config.block_size={}", there.positions - prompt)
            : ""));
  }
  return differences;
}

std::vector<std::string> unsupported_in_bert(const Json& config) {
  return differences_from_fixed(config, {{"hidden_act", "gelu"},
                                         {"activation", "gelu"},
                                         {"position_embedding_type", "absolute"},
                                         {"tie_word_embeddings", true},
                                         {"is_decoder", false},
                                         {"add_cross_attention", false},
                                         {"is_encoder_decoder", false}});
}

/// What config.json calls the sizes and dropout rates of a BERT.
struct BertKeys {
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* width = "hidden_size";
  const char* inner = "intermediate_size";
  const char* dropout = "hidden_dropout_prob";
  const char* attention_dropout = "attention_probs_dropout_prob";
};

BertConfig bert_shape(const Values& values, BertFamily family) {
  const bool distilled = family == BertFamily::kDistilbert;
  const BertKeys keys = distilled ? BertKeys{"n_layers",   "n_heads", "dim",
                                             "hidden_dim", "dropout", "attention_dropout"}
                                  : BertKeys{};
  BertConfig shape;
  shape.family = family;
  shape.n_layer = values.number(keys.layers, distilled ? 6 : 12, kMostLayers);
  shape.n_head = values.number(keys.heads, 12, kMostLayers);
  shape.n_embd = values.number(keys.width, 768, kMostWidth);
  shape.intermediate = values.number(keys.inner, 3072, kMostWidth);
  shape.type_vocab_size = distilled ? 0 : values.number("type_vocab_size", 2, kMostLayers);
  if (!distilled) shape.layer_norm_eps = values.real("layer_norm_eps", 1e-12, kAbove0);
  shape.hidden_pdrop = values.real(keys.dropout, 0.1, kProbability);
  shape.attn_pdrop = values.real(keys.attention_dropout, 0.1, kProbability);
  if (family == BertFamily::kRoberta) shape.position_offset = values.whole("pad_token_id", 1) + 1;
  return shape;
}

template <class Enum>
std::optional<Enum> value_named(const std::string& name) {
  const Names names = names_of(Enum{});
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// id2label of a ...ForSequenceClassification; transformers leaves it out where the classes are
/// two and have no names.
std::vector<std::string> labels_in(const Json& config, const std::string& path, BertFamily family) {
  const Json architectures = config.value("architectures", Json::array());
  const std::string classifier =
      std::string(traits_of(family).model_class) + "ForSequenceClassification";
  if (std::find(architectures.begin(), architectures.end(), classifier) == architectures.end())
    return {};
  const Json names = config.value("id2label", Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto name = names.find(std::to_string(i));
    if (!names.is_object() || name == names.end() || !name->is_string())
      throw UserError(fmt::format("{}: id2label is {}; {}", path, names.dump(), kHowToMake));
    labels.push_back(*name);
  }
  return labels;
}

/// Where it is null, a single label makes a regression, as in transformers.
void take_problem_type(PretrainedBert& bert, const Values& values) {
  ProblemType& type = bert.shape.problem_type;
  type = bert.labels.size() == 1 ? ProblemType::kRegression : ProblemType::kSingleLabel;
  const std::string given = values.text("problem_type", std::string(name_of(type)));
  const auto named = value_named<ProblemType>(given);
  if (!named) {
    bert.unsupported.push_back(fmt::format("problem_type is {}, not one of {}", given,
                                           fmt::join(names_of(ProblemType{}), ", ")));
    return;
  }
  type = *named;
  if (type == ProblemType::kRegression && bert.labels.size() > 1)
    bert.unsupported.push_back(
        fmt::format("problem_type is regression of {} numbers, not of 1", bert.labels.size()));
}

void take_sizes(PretrainedSizes& sizes, const Json& model, const Json& config) {
  sizes.n_layer = model.at("n_layer");
  sizes.n_head = model.at("n_head");
  sizes.n_embd = model.at("n_embd");
  sizes.positions = config.at("data_config").at("block_size");
}

PretrainedBert bert_of_snapshot(const std::string& path) {
  PretrainedBert result;
  with_pretrained_snapshot(
      path, {TaskKind::kMaskedLm, TaskKind::kTextClassification},
      [&](const Json& metadata, const Json& config, const std::string& task) {
        const Json& bert = config.at("bert_config");
        take_sizes(result, bert, config);
        BertConfig& shape = result.shape;
        shape.n_layer = result.n_layer;
        shape.n_head = result.n_head;
        shape.n_embd = result.n_embd;
        shape.intermediate = bert.at("intermediate");
        // Older snapshots lack these.
        const std::string family = bert.value("family", "bert");
        shape.family = value_named<BertFamily>(family).value_or(BertFamily::kBert);
        shape.problem_type = value_named<ProblemType>(bert.value("problem_type", ""))
                                 .value_or(ProblemType::kSingleLabel);
        shape.type_vocab_size = bert.value("type_vocab_size", shape.type_vocab_size);
        shape.position_offset = bert.value("position_offset", shape.position_offset);
        shape.layer_norm_eps = bert.value("layer_norm_eps", shape.layer_norm_eps);
        shape.hidden_pdrop = result.classifier_pdrop = bert.at("hidden_pdrop");
        shape.attn_pdrop = bert.at("attn_pdrop");
        result.tokenizer_state = metadata.at("tokenizer").get<std::string>();
        if (task == task_name(TaskKind::kTextClassification))
          result.labels = Json::parse(metadata.at("labels").get<std::string>());
      });
  return result;
}

PretrainedGpt gpt_of_snapshot(const std::string& path) {
  PretrainedGpt result;
  with_pretrained_snapshot(
      path, {TaskKind::kCausalLm}, [&](const Json&, const Json& config, const std::string&) {
        const Json& gpt = config.at("gpt_config");
        take_sizes(result, gpt, config);
        result.activation =
            gpt.at("activation") == "gelu" ? Activation::kGelu : Activation::kGeluTanh;
        result.tie_weights = gpt.at("tie_weights");
        result.embd_pdrop = gpt.at("embd_pdrop");
        result.resid_pdrop = gpt.at("resid_pdrop");
        result.attn_pdrop = gpt.at("attn_pdrop");
      });
  return result;
}

}  // namespace

std::map<std::string, std::string> causal_snapshot_metadata(const std::string& path) {
  std::map<std::string, std::string> result;
  with_pretrained_snapshot(
      path, {TaskKind::kCausalLm},
      [&](const Json& metadata, const Json&, const std::string&) { result = metadata; });
  return result;
}

PretrainedBert read_pretrained_bert(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return bert_of_snapshot(path);
  const std::string file = path + "/config.json";
  const Json config = parse_pretrained_config(file);
  const Values values(config, file);
  const std::string type = values.text("model_type", "");
  const auto family = value_named<BertFamily>(type);
  if (!family) {
    throw UserError(fmt::format("{}: model_type is '{}', not {}; give the folder of a BERT", file,
                                type, fmt::join(names_of(BertFamily{}), ", ")));
  }
  PretrainedBert result;
  result.shape = bert_shape(values, *family);
  result.n_layer = result.shape.n_layer;
  result.n_head = result.shape.n_head;
  result.n_embd = result.shape.n_embd;
  result.classifier_pdrop =
      *family == BertFamily::kDistilbert
          ? values.real("seq_classif_dropout", 0.2, kProbability)
          : values.real("classifier_dropout", result.shape.hidden_pdrop, kProbability);
  values.number("vocab_size", 1, kMostPositions);  // the vocabulary is the tokenizer's
  const int64_t rows = values.number("max_position_embeddings", 512, kMostPositions);
  result.positions = rows - result.shape.position_offset;
  if (result.positions < 1)
    throw UserError(
        fmt::format("{}: max_position_embeddings is {}, not above pad_token_id + 1 = "
                    "{}; {}",
                    file, rows, result.shape.position_offset, kHowToMake));
  result.labels = labels_in(config, file, *family);
  result.unsupported = unsupported_in_bert(config);
  take_problem_type(result, values);
  return result;
}

PretrainedGpt read_pretrained_gpt(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return gpt_of_snapshot(path);
  const std::string file = path + "/config.json";
  const Json config = parse_pretrained_config(file);
  const Values values(config, file);
  const std::string type = values.text("model_type", "");
  if (type != "gpt2") {
    throw UserError(
        fmt::format("{}: model_type is '{}', this trainer reads only gpt2; give the "
                    "folder of a GPT-2",
                    file, type));
  }
  PretrainedGpt result;
  result.n_layer = values.number("n_layer", 12, kMostLayers);
  result.n_head = values.number("n_head", 12, kMostLayers);
  result.n_embd = values.number("n_embd", 768, kMostWidth);
  result.positions = values.number("n_positions", 1024, kMostPositions);
  result.activation = activation_named(values.text("activation_function", "gelu_new"));
  result.tie_weights = values.flag("tie_word_embeddings", true);
  if (result.tie_weights) result.head_note = own_head_note(path, kGpt2Layout);
  result.tie_weights = result.tie_weights && result.head_note.empty();
  result.embd_pdrop = values.real("embd_pdrop", 0.1, kProbability);
  result.resid_pdrop = values.real("resid_pdrop", 0.1, kProbability);
  result.attn_pdrop = values.real("attn_pdrop", 0.1, kProbability);
  values.number("vocab_size", 1, kMostPositions);  // the vocabulary is the tokenizer's
  result.unsupported = unsupported_in(config, values, result.n_embd);
  return result;
}

std::vector<std::string> differences_from(const PretrainedGpt& pretrained, const GptConfig& gpt,
                                          const Config& config) {
  std::vector<std::string> differences = size_differences(pretrained, gpt, config);
  if (pretrained.activation && *pretrained.activation != gpt.activation) {
    const bool tanh = *pretrained.activation == Activation::kGeluTanh;
    differences.push_back(fmt::format("activation is {} there, {} here",
                                      tanh ? "gelu_tanh" : "gelu", tanh ? "gelu" : "gelu_tanh"));
  }
  if (pretrained.tie_weights != gpt.tie_weights) {
    differences.push_back(
        fmt::format("tie_weights is {} there, {} here", pretrained.tie_weights, gpt.tie_weights));
  }
  return differences;
}

std::vector<std::string> differences_from(const PretrainedBert& pretrained, const BertConfig& bert,
                                          const Config& config) {
  std::vector<std::string> differences = size_differences(pretrained, bert, config);
  const BertConfig& there = pretrained.shape;
  compare_value(differences, "family", name_of(there.family), name_of(bert.family));
  compare_value(differences, "intermediate", there.intermediate, bert.intermediate);
  compare_value(differences, "type_vocab_size", there.type_vocab_size, bert.type_vocab_size);
  compare_value(differences, "position_offset", there.position_offset, bert.position_offset);
  compare_value(differences, "layer_norm_eps", there.layer_norm_eps, bert.layer_norm_eps);
  return differences;
}

}  // namespace ddp::train
