#include "trainer/interop/pretrained_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/json_depth.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kConvertBert =
    "in Python, AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) of "
    "transformers turns a pytorch_model.bin into one";

std::vector<std::string> weight_files(const std::string& folder, const PretrainedLayout& layout) {
  if (fs::is_regular_file(folder)) return {folder};  // a snapshot
  const std::string single = folder + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (fs::exists(single)) return {single};
  if (!fs::exists(index)) {
    throw UserError(fmt::format("{}: no such file; {}", single, layout.how_to_make));
  }
  const auto text = read_small_file(index);
  const auto json = text && !nests_too_deeply(*text) ? nlohmann::json::parse(*text, nullptr, false)
                                                     : nlohmann::json();
  std::set<std::string> names;
  if (json.is_object() && json.contains("weight_map") && json["weight_map"].is_object()) {
    for (const auto& name : json["weight_map"]) {
      if (name.is_string()) names.insert(folder + "/" + fs::path(name).filename().string());
    }
  }
  if (names.empty()) throw UserError(index + ": has no weight_map; download the folder again");
  return {names.begin(), names.end()};
}

/// "x.gamma" -> "x.weight": TensorFlow's names, in files of the first versions.
std::string renamed_end(const std::string& name, std::string_view end, std::string_view now) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()).append(now) : name;
}

std::string now_called(const std::string& theirs) {
  return renamed_end(renamed_end(theirs, "LayerNorm.gamma", "LayerNorm.weight"), "LayerNorm.beta",
                     "LayerNorm.bias");
}

bool starts_with_one_of(const std::string& name, const std::vector<std::string>& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&name](const std::string& start) { return name.starts_with(start); });
}

std::string own_bert_name(const std::string& theirs) {
  static const std::vector<std::string> left_out = {"bert.pooler.", "cls.seq_relationship.",
                                                    "cls.predictions.decoder.",
                                                    "bert.embeddings.position_ids"};
  if (starts_with_one_of(theirs, left_out)) return "";
  return now_called(theirs);
}

std::string own_classifier_name(const std::string& theirs) {
  static const std::vector<std::string> left_out = {"cls.", "bert.embeddings.position_ids"};
  return starts_with_one_of(theirs, left_out) ? "" : now_called(theirs);
}

bool is_optional_in_classifier(std::string_view name) {
  return name.starts_with("bert.pooler.") || name.starts_with("classifier.");
}

std::optional<torch::ScalarType> dtype_of(const TensorBytes& bytes) {
  if (bytes.dtype == "F32") return torch::kFloat32;
  if (bytes.dtype == "F16") return torch::kFloat16;
  if (bytes.dtype == "BF16") return torch::kBFloat16;
  return std::nullopt;
}

/// The tensors of all files by the name that they have in this model.
class PretrainedTensors {
 public:
  PretrainedTensors(const std::string& folder, const PretrainedLayout& layout)
      : of_snapshot_(fs::is_regular_file(folder)) {
    for (const std::string& path : weight_files(folder, layout)) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      const SafetensorsFile& file = *files_.back();
      if (of_snapshot_) file.verify_checksum();
      for (const TensorBytes& tensor : file.tensors()) {
        const std::string theirs = of_snapshot_ ? name_in_model(file, tensor.name) : tensor.name;
        const std::string name = theirs.empty() ? "" : layout.own_name(theirs);
        if (!name.empty()) by_name_[name] = &tensor;
      }
    }
  }

  const TensorBytes* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  const std::map<std::string, const TensorBytes*>& all() const { return by_name_; }
  /// Snapshots hold each tensor as the model has it.
  bool is_snapshot() const { return of_snapshot_; }

 private:
  /// The model's name for a snapshot's tensor, "" unless it is a parameter as used in evaluations.
  static std::string name_in_model(const SafetensorsFile& file, const std::string& tensor) {
    constexpr std::string_view kAverage = "ema.";
    constexpr std::string_view kPresent = "model.";
    if (tensor.starts_with(kAverage)) return tensor.substr(kAverage.size());
    if (!tensor.starts_with(kPresent)) return "";
    std::string name = tensor.substr(kPresent.size());
    return file.find(std::string(kAverage) + name) == nullptr ? name : "";
  }

  bool of_snapshot_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const TensorBytes*> by_name_;
};

torch::Tensor read(const TensorBytes& bytes) {
  auto tensor = torch::empty(bytes.shape, *dtype_of(bytes));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data, bytes.size);
  return tensor.to(torch::kFloat32);
}

/// As the file should have it; the first dimension of the positions may be larger.
std::vector<int64_t> shape_there(const PretrainedLayout& layout, const NamedTensor& parameter) {
  auto shape = parameter.tensor.sizes().vec();
  if (layout.is_transposed(parameter.name)) std::reverse(shape.begin(), shape.end());
  return shape;
}

/// Whether a table with `there` rows holds one for each of `here` tokens and was padded, as Qwen's
/// to a multiple of 128; the further rows are of no token.
bool is_padded_table(int64_t there, int64_t here) {
  constexpr int64_t kMultiple = 64;
  constexpr int64_t kMostPadding = 512;
  return there > here && there % kMultiple == 0 && there - here < kMostPadding &&
         here > kMostPadding;
}

/// The rows of a table are the tokenizer's tokens.
std::string vocabulary_note(const std::vector<int64_t>& there, const std::vector<int64_t>& here) {
  if (there.size() != here.size() || there[0] == here[0]) return "";
  return fmt::format(
      " (the tokenizer has {} tokens, the table there {} rows: use the tokenizer that the weights "
      "were trained with, as data_config.tokenizer{})",
      here[0], there[0], here[0] > there[0] ? ", or drop the tokens that were added to it" : "");
}

std::string difference(const PretrainedLayout& layout, const NamedTensor& parameter,
                       const TensorBytes* there) {
  if (there == nullptr) return parameter.name + " is missing";
  if (!dtype_of(*there))
    return fmt::format("{} is of type {}, not float32, float16 or bfloat16", parameter.name,
                       there->dtype);
  auto wanted = shape_there(layout, parameter);
  const bool positions = layout.positions != nullptr && parameter.name.ends_with(layout.positions);
  if (positions && there->shape.size() == 2) wanted[0] = std::max(wanted[0], there->shape[0]);
  const bool vocabulary = parameter.name.ends_with(layout.words) || parameter.name.ends_with(kHead);
  if (vocabulary && there->shape.size() == 2 && is_padded_table(there->shape[0], wanted[0]))
    wanted[0] = there->shape[0];
  if (there->shape == wanted) return "";
  return fmt::format(
      "{} is [{}] there, [{}] here{}", parameter.name, fmt::join(there->shape, ", "),
      fmt::join(shape_there(layout, parameter), ", "),
      vocabulary ? vocabulary_note(there->shape, shape_there(layout, parameter)) : "");
}

std::vector<std::string> all_differences(const PretrainedTensors& there,
                                         const PretrainedLayout& layout,
                                         const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> result;
  std::set<std::string> known = {kHead};  // a tied head has no parameter of its own
  for (const NamedTensor& parameter : parameters) {
    known.insert(parameter.name);
    if (layout.is_optional(parameter.name) && there.find(parameter.name) == nullptr) continue;
    const std::string text = difference(layout, parameter, there.find(parameter.name));
    if (!text.empty()) result.push_back(text);
  }
  for (const auto& [name, tensor] : there.all()) {
    if (known.count(name) == 0 && !layout.is_optional(name))
      result.push_back(name + " is not a parameter of this model");
  }
  return result;
}

void refuse(const PretrainedLayout& layout, const std::string& folder,
            std::vector<std::string> differences) {
  constexpr std::size_t kMostShown = 12;
  const std::size_t count = differences.size();
  if (count > kMostShown) {
    differences.resize(kMostShown);
    differences.push_back(fmt::format("and {} more", count - kMostShown));
  }
  throw UserError(fmt::format("{}: {}: the weights do not fit: {}", layout.key, folder,
                              fmt::join(differences, "; ")));
}

}  // namespace

const PretrainedLayout kBertLayout = {"bert_config.init_from",
                                      own_bert_name,
                                      is_never_transposed,
                                      is_never_optional,
                                      "position_embeddings.weight",
                                      "word_embeddings.weight",
                                      kConvertBert};
const PretrainedLayout kBertClassifierLayout = {"bert_config.init_from",
                                                own_classifier_name,
                                                is_never_transposed,
                                                is_optional_in_classifier,
                                                "position_embeddings.weight",
                                                "word_embeddings.weight",
                                                kConvertBert};

std::vector<std::string> load_pretrained(const std::string& folder, PretrainedLayout layout,
                                         const std::vector<NamedTensor>& parameters) {
  return load_pretrained(
      folder, layout, parameters,
      [&](std::size_t i, const torch::Tensor& values) { parameters[i].tensor.copy_(values); });
}

std::vector<std::string> load_pretrained(
    const std::string& folder, PretrainedLayout layout, const std::vector<NamedTensor>& parameters,
    const std::function<void(std::size_t i, const torch::Tensor& values)>& take) {
  const PretrainedTensors there(folder, layout);
  if (there.is_snapshot()) layout.is_transposed = is_never_transposed;
  auto differences = all_differences(there, layout, parameters);
  if (!differences.empty()) refuse(layout, folder, std::move(differences));
  const torch::NoGradGuard no_grad;
  std::vector<std::string> absent;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const NamedTensor& parameter = parameters[i];
    const int64_t rows = parameter.tensor.size(0);
    const TensorBytes* bytes = there.find(parameter.name);
    if (bytes == nullptr) {
      absent.push_back(parameter.name);
      continue;
    }
    auto tensor = read(*bytes);
    if (layout.is_transposed(parameter.name)) tensor = tensor.t();
    take(i, tensor.narrow(0, 0, rows));
  }
  return absent;
}

}  // namespace ddp::train
