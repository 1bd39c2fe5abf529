#include "trainer/model/pretrained_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

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
                                      {"is_encoder_decoder", false},
                                      {"quantization_config", nullptr}});
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
        "it has {} positions, data_config.block_size{} asks for {}", there.positions,
        prompt > 0
            ? fmt::format("={} after prompt_tuning.tokens={}", config.data.block_size, prompt)
            : "",
        config.positions()));
  }
  return differences;
}

std::vector<std::string> unsupported_in_bert(const Json& config) {
  return differences_from_fixed(config, {{"hidden_act", "gelu"},
                                         {"layer_norm_eps", 1e-12},
                                         {"position_embedding_type", "absolute"},
                                         {"type_vocab_size", 2},
                                         {"tie_word_embeddings", true},
                                         {"is_decoder", false},
                                         {"add_cross_attention", false},
                                         {"is_encoder_decoder", false},
                                         {"problem_type", "single_label_classification"},
                                         {"quantization_config", nullptr}});
}

/// id2label of a BertForSequenceClassification; transformers leaves it out where the classes are
/// two and have no names.
std::vector<std::string> labels_in(const Json& config, const std::string& path) {
  const Json architectures = config.value("architectures", Json::array());
  const auto* const kClassifier = "BertForSequenceClassification";
  if (std::find(architectures.begin(), architectures.end(), kClassifier) == architectures.end())
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

void take_sizes(PretrainedSizes& sizes, const Json& model, const Json& config) {
  sizes.n_layer = model.at("n_layer");
  sizes.n_head = model.at("n_head");
  sizes.n_embd = model.at("n_embd");
  sizes.positions = config.at("data_config").at("block_size");
}

PretrainedBert bert_of_snapshot(const std::string& path) {
  PretrainedBert result;
  with_pretrained_snapshot(path, {TaskKind::kMaskedLm, TaskKind::kTextClassification},
                           [&](const Json& metadata, const Json& config, const std::string& task) {
                             const Json& bert = config.at("bert_config");
                             take_sizes(result, bert, config);
                             result.intermediate = bert.at("intermediate");
                             result.tokenizer_state = metadata.at("tokenizer").get<std::string>();
                             if (task == task_name(TaskKind::kTextClassification))
                               result.labels =
                                   Json::parse(metadata.at("labels").get<std::string>());
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
  if (type != "bert") {
    throw UserError(
        fmt::format("{}: model_type is '{}', not bert; give the folder of a BERT", file, type));
  }
  PretrainedBert result;
  result.n_layer = values.number("num_hidden_layers", 12, kMostLayers);
  result.n_head = values.number("num_attention_heads", 12, kMostLayers);
  result.n_embd = values.number("hidden_size", 768, kMostWidth);
  result.intermediate = values.number("intermediate_size", 3072, kMostWidth);
  result.positions = values.number("max_position_embeddings", 512, kMostPositions);
  result.labels = labels_in(config, file);
  result.unsupported = unsupported_in_bert(config);
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
  compare_value(differences, "intermediate", pretrained.intermediate, bert.intermediate);
  return differences;
}

}  // namespace ddp::train
