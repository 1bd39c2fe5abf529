#include "trainer/model/pretrained_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/json_depth.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kHowToMake =
    "give a folder that transformers' save_pretrained, trainer export or, for a GPT, "
    "scripts/convert_checkpoint.py has written";

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: {}; {}", path, std::strerror(errno), kHowToMake));
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Json parse_config(const std::string& path) {
  const std::string text = read_text(path);
  if (nests_too_deeply(text))
    throw UserError(fmt::format("{}: nested too deeply; {}", path, kHowToMake));
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    throw UserError(fmt::format("{}: not a JSON object; {}", path, kHowToMake));
  return config;
}

/// Values as GPT2Config has them, its defaults included.
class Values {
 public:
  Values(const Json& config, const std::string& path) : config_(config), path_(path) {}

  int64_t number(const char* key, int64_t otherwise) const {
    const auto value = get(key, otherwise, &Json::is_number_integer);
    if (value < 1) fail(key);
    return value;
  }
  bool flag(const char* key, bool otherwise) const {
    return get(key, otherwise, &Json::is_boolean);
  }
  double real(const char* key, double otherwise) const {
    return get(key, otherwise, &Json::is_number);
  }
  std::string text(const char* key, const std::string& otherwise) const {
    return get(key, otherwise, &Json::is_string);
  }

 private:
  template <class T>
  T get(const char* key, const T& otherwise, bool (Json::*is_of_type)() const) const {
    const auto value = config_.find(key);
    if (value == config_.end() || value->is_null()) return otherwise;
    if (!((*value).*is_of_type)()) fail(key);
    return value->get<T>();
  }
  [[noreturn]] void fail(const char* key) const {
    throw UserError(fmt::format("{}: {} is {}; {}", path_, key, config_[key].dump(), kHowToMake));
  }

  const Json& config_;
  const std::string& path_;
};

std::optional<Activation> activation_named(const std::string& name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  return std::nullopt;
}

/// `there` is the value of the key, `ours` the only one that this model can represent.
template <class T>
void expect(std::vector<std::string>& differences, const char* key, const T& there, const T& ours) {
  if (there != ours) differences.push_back(fmt::format("{} is {}, not {}", key, there, ours));
}

std::vector<std::string> unsupported_in(const Values& values, int64_t n_embd) {
  constexpr double kEpsilon = 1e-5;
  std::vector<std::string> found;
  const std::string activation = values.text("activation_function", "gelu_new");
  if (!activation_named(activation))
    found.push_back(fmt::format("activation_function is {}, not gelu or gelu_new", activation));
  expect(found, "layer_norm_epsilon", values.real("layer_norm_epsilon", kEpsilon), kEpsilon);
  const int64_t inner = values.number("n_inner", 4 * n_embd);
  if (inner != 4 * n_embd)
    found.push_back(fmt::format("n_inner is {}, not 4 x n_embd = {}", inner, 4 * n_embd));
  if (!values.flag("scale_attn_weights", true)) found.emplace_back("scale_attn_weights is false");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (values.flag(key, false)) found.push_back(fmt::format("{} is true", key));
  }
  return found;
}

void compare(std::vector<std::string>& differences, const char* name, int64_t there, int64_t here) {
  if (there != here)
    differences.push_back(fmt::format("{} is {} there, {} here", name, there, here));
}

template <class Model>
std::vector<std::string> size_differences(const PretrainedSizes& there, const Model& model,
                                          int64_t block_size) {
  std::vector<std::string> differences = there.unsupported;
  compare(differences, "n_layer", there.n_layer, model.n_layer);
  compare(differences, "n_head", there.n_head, model.n_head);
  compare(differences, "n_embd", there.n_embd, model.n_embd);
  if (block_size > there.positions) {
    differences.push_back(fmt::format("it has {} positions, data_config.block_size asks for {}",
                                      there.positions, block_size));
  }
  return differences;
}

std::vector<std::string> unsupported_in_bert(const Values& values) {
  constexpr double kEpsilon = 1e-12;
  std::vector<std::string> found;
  const auto expect_text = [&](const char* key, const std::string& ours) {
    expect(found, key, values.text(key, ours), ours);
  };
  expect_text("hidden_act", "gelu");
  expect(found, "layer_norm_eps", values.real("layer_norm_eps", kEpsilon), kEpsilon);
  expect_text("position_embedding_type", "absolute");
  expect(found, "type_vocab_size", values.number("type_vocab_size", 2), int64_t{2});
  if (!values.flag("tie_word_embeddings", true)) found.emplace_back("tie_word_embeddings is false");
  if (values.flag("is_decoder", false)) found.emplace_back("is_decoder is true");
  return found;
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

/// The metadata of a safetensors file, by https://github.com/huggingface/safetensors#format.
Json metadata_of(const std::string& path) {
  constexpr uint64_t kLongest = 100'000'000;  // as the reader of weights
  std::ifstream file(path, std::ios::binary);
  unsigned char head[8] = {};
  file.read(reinterpret_cast<char*>(head), sizeof head);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8U | head[i];
  std::string text(file && length <= kLongest ? length : 0, ' ');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const bool readable = file.good() && !nests_too_deeply(text);
  const Json header = readable ? Json::parse(text, nullptr, false) : Json();
  if (header.is_object() && header.contains("__metadata__")) return header["__metadata__"];
  throw UserError(
      fmt::format("{}: is neither a snapshot of this trainer nor a folder; {}", path, kHowToMake));
}

/// The configuration of a snapshot of one of `tasks`, given to `take`.
template <class Take>
void with_snapshot(const std::string& path, const std::vector<TaskKind>& tasks, const Take& take) {
  const Json metadata = metadata_of(path);
  try {
    const Json config = Json::parse(metadata.at("config").get<std::string>());
    const std::string task = metadata.value("task", std::string(task_name(TaskKind::kCausalLm)));
    std::vector<std::string> names;
    for (const TaskKind wanted : tasks) names.emplace_back(task_name(wanted));
    if (std::find(names.begin(), names.end(), task) == names.end()) {
      throw UserError(fmt::format("{}: is a snapshot of task {}; give one of {}", path, task,
                                  fmt::join(names, " or ")));
    }
    take(metadata, config, task);
  } catch (const Json::exception&) {
    throw UserError(
        fmt::format("{}: its metadata is not that of a snapshot; {}", path, kHowToMake));
  }
}

void take_sizes(PretrainedSizes& sizes, const Json& model, const Json& config) {
  sizes.n_layer = model.at("n_layer");
  sizes.n_head = model.at("n_head");
  sizes.n_embd = model.at("n_embd");
  sizes.positions = config.at("data_config").at("block_size");
}

PretrainedBert bert_of_snapshot(const std::string& path) {
  PretrainedBert result;
  with_snapshot(path, {TaskKind::kMaskedLm, TaskKind::kTextClassification},
                [&](const Json& metadata, const Json& config, const std::string& task) {
                  const Json& bert = config.at("bert_config");
                  take_sizes(result, bert, config);
                  result.intermediate = bert.at("intermediate");
                  result.tokenizer_state = metadata.at("tokenizer").get<std::string>();
                  if (task == task_name(TaskKind::kTextClassification))
                    result.labels = Json::parse(metadata.at("labels").get<std::string>());
                });
  return result;
}

PretrainedGpt gpt_of_snapshot(const std::string& path) {
  PretrainedGpt result;
  with_snapshot(path, {TaskKind::kCausalLm},
                [&](const Json&, const Json& config, const std::string&) {
                  const Json& gpt = config.at("gpt_config");
                  take_sizes(result, gpt, config);
                  result.activation =
                      gpt.at("activation") == "gelu" ? Activation::kGelu : Activation::kGeluTanh;
                  result.tie_weights = gpt.at("tie_weights");
                });
  return result;
}

}  // namespace

std::string pretrained_type(const std::string& folder) {
  const std::string file = folder + "/config.json";
  const Json config = parse_config(file);
  return Values(config, file).text("model_type", "");
}

std::map<std::string, std::string> causal_snapshot_metadata(const std::string& path) {
  std::map<std::string, std::string> result;
  with_snapshot(path, {TaskKind::kCausalLm},
                [&](const Json& metadata, const Json&, const std::string&) { result = metadata; });
  return result;
}

PretrainedBert read_pretrained_bert(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return bert_of_snapshot(path);
  const std::string file = path + "/config.json";
  const Json config = parse_config(file);
  const Values values(config, file);
  const std::string type = values.text("model_type", "");
  if (type != "bert") {
    throw UserError(
        fmt::format("{}: model_type is '{}', not bert; give the folder of a BERT", file, type));
  }
  PretrainedBert result;
  result.n_layer = values.number("num_hidden_layers", 12);
  result.n_head = values.number("num_attention_heads", 12);
  result.n_embd = values.number("hidden_size", 768);
  result.intermediate = values.number("intermediate_size", 3072);
  result.positions = values.number("max_position_embeddings", 512);
  result.labels = labels_in(config, file);
  result.unsupported = unsupported_in_bert(values);
  return result;
}

PretrainedGpt read_pretrained_gpt(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return gpt_of_snapshot(path);
  const std::string file = path + "/config.json";
  const Json config = parse_config(file);
  const Values values(config, file);
  const std::string type = values.text("model_type", "");
  if (type != "gpt2") {
    throw UserError(
        fmt::format("{}: model_type is '{}', this trainer reads only gpt2; give the "
                    "folder of a GPT-2",
                    file, type));
  }
  PretrainedGpt result;
  result.n_layer = values.number("n_layer", 12);
  result.n_head = values.number("n_head", 12);
  result.n_embd = values.number("n_embd", 768);
  result.positions = values.number("n_positions", 1024);
  result.activation = activation_named(values.text("activation_function", "gelu_new"));
  result.tie_weights = values.flag("tie_word_embeddings", true);
  result.unsupported = unsupported_in(values, result.n_embd);
  return result;
}

std::vector<std::string> differences_from(const PretrainedGpt& pretrained, const GptConfig& gpt,
                                          int64_t block_size) {
  std::vector<std::string> differences = size_differences(pretrained, gpt, block_size);
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
                                          int64_t block_size) {
  std::vector<std::string> differences = size_differences(pretrained, bert, block_size);
  compare(differences, "intermediate", pretrained.intermediate, bert.intermediate);
  return differences;
}

}  // namespace ddp::train
