#include "trainer/interop/pretrained_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "trainer/interop/bitsandbytes_files.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/load/pretrained_files.h"
#include "trainer/runtime/error.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kConvertBert =
    "in Python, AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) of "
    "transformers turns a pytorch_model.bin into one";

/// A snapshot is its own.
std::set<std::string> files_to_read(const std::string& folder, const PretrainedLayout& layout) {
  if (fs::is_regular_file(folder)) return {folder};
  auto files = weight_files(folder, layout);
  if (!files.empty()) return files;
  const std::string single = folder + "/" + layout.file, index = single + ".index.json";
  if (fs::exists(index)) throw UserError(index + ": has no weight_map; download the folder again");
  throw UserError(fmt::format("{}: no such file; {}", single, layout.how_to_make));
}

/// "x.gamma" -> "x.weight": TensorFlow's names, in files of the first versions.
std::string now_called(std::string name) {
  const std::size_t last = name.rfind('.') + 1;
  if (name.ends_with("LayerNorm.gamma")) name.replace(last, name.npos, "weight");
  if (name.ends_with("LayerNorm.beta")) name.replace(last, name.npos, "bias");
  return name;
}

bool starts_with_one_of(const std::string& name, const std::vector<std::string>& starts) {
  return std::ranges::any_of(starts, [&](const auto& start) { return name.starts_with(start); });
}

/// RoBERTa's own pooler is for pretraining, as BERT's second head is.
bool is_left_out_of_bert(const std::string& name) {
  return name.ends_with(".embeddings.position_ids") ||
         starts_with_one_of(name, {"cls.seq_relationship.", "roberta.pooler."});
}

std::string own_bert_name(const std::string& theirs) {
  static const std::vector<std::string> heads = {
      "cls.predictions.decoder.weight", "lm_head.decoder.weight", "vocab_projector.weight"};
  if (std::ranges::find(heads, theirs) != heads.end()) return kHead;
  const bool left_out = is_left_out_of_bert(theirs) ||
                        starts_with_one_of(theirs, {"bert.pooler.", "cls.predictions.decoder.bias",
                                                    "lm_head.decoder.bias"});
  return left_out ? "" : now_called(theirs);
}

std::string own_classifier_name(const std::string& theirs) {
  const bool left_out =
      is_left_out_of_bert(theirs) || starts_with_one_of(theirs, {"cls.", "lm_head.", "vocab_"});
  return left_out ? "" : now_called(theirs);
}

/// peft also saves the frozen tables below adapters and trained rows of embed_tokens and lm_head.
std::string own_peft_name(const std::string& theirs) {
  constexpr std::string_view kStart = "base_model.model.", kWrapper = ".token_adapter";
  if (!theirs.starts_with(kStart) || theirs.ends_with(".base_layer.weight")) return "";
  std::string name = theirs.substr(kStart.size());
  if (const auto at = name.find(kWrapper); at != std::string::npos) name.erase(at, kWrapper.size());
  return name;
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
  PretrainedTensors(const std::string& folder, const PretrainedLayout& layout) {
    const bool of_snapshot = fs::is_regular_file(folder);
    for (const std::string& path : files_to_read(folder, layout)) {
      paths_.push_back(path);
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      const SafetensorsFile& file = *files_.back();
      if (of_snapshot) file.verify_checksum();
      for (const TensorBytes& tensor : file.tensors()) {
        const std::string theirs = of_snapshot ? name_in_model(file, tensor.name) : tensor.name;
        const std::string name = theirs.empty() ? "" : layout.own_name(theirs);
        if (!name.empty()) by_name_[name] = &tensor;
      }
    }
    if (!of_snapshot) codes_ = take_stored_codes(by_name_, folder);
  }

  const TensorBytes* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  const std::map<std::string, const TensorBytes*>& all() const { return by_name_; }
  /// Replaces the weights of fused layers by those of their parts, which have the rows of
  /// `parameters`.
  void split(const PretrainedLayout& layout, const std::vector<ParameterShape>& parameters) {
    for (const FusedLayers& fused : layout.fused) {
      const std::string end = fused.theirs + ".weight";
      for (const auto& [name, tensor] : std::map(by_name_)) {
        if (!name.ends_with(end) || tensor->shape.size() != 2) continue;
        by_name_.erase(name);
        split(*tensor, name.substr(0, name.size() - end.size()), fused.parts, parameters);
      }
    }
  }
  /// Null: the tensor is none of codes.
  const StoredCodes* codes_of(const std::string& name) const {
    const auto found = codes_.find(name);
    return found == codes_.end() ? nullptr : &found->second;
  }
  /// `name` is another name of a tensor.
  void add(const std::string& name, const TensorBytes* tensor) { by_name_[name] = tensor; }
  std::string file_of(const TensorBytes* tensor) const {
    const auto file = std::find_if(files_.begin(), files_.end(), [tensor](const auto& each) {
      return each->find(tensor->name) == tensor;
    });
    return paths_[static_cast<std::size_t>(file - files_.begin())];
  }
  /// The file, or the folder of several.
  std::string place() const {
    return paths_.size() == 1 ? paths_.front() : fs::path(paths_.front()).parent_path().string();
  }

 private:
  /// The last part gets the rows that are left.
  void split(const TensorBytes& whole, const std::string& layer,
             const std::vector<std::string>& parts, const std::vector<ParameterShape>& parameters) {
    int64_t first = 0;
    const auto in_codes = std::ranges::find_if(
        codes_, [&whole](const auto& each) { return &each.second.weight == &whole; });
    for (const std::string& part : parts) {
      const std::string name = layer + part + ".weight";
      const auto own = std::ranges::find(parameters, name, &ParameterShape::name);
      const int64_t left = whole.shape[0] - first;
      const int64_t rows =
          own == parameters.end() || part == parts.back() ? left : std::min(left, own->sizes[0]);
      const std::size_t row =
          whole.size / static_cast<std::size_t>(std::max<int64_t>(1, whole.shape[0]));
      TensorBytes& bytes = parts_.emplace_back(whole);
      bytes.shape[0] = rows;
      bytes.data += row * static_cast<std::size_t>(first);
      bytes.size = row * static_cast<std::size_t>(rows);
      if (in_codes != codes_.end()) codes_[name] = in_codes->second.part(bytes, first);
      by_name_[name] = &bytes;
      first += rows;
    }
  }
  /// The model's name for a snapshot's tensor, "" unless it is a parameter as used in evaluations.
  static std::string name_in_model(const SafetensorsFile& file, const std::string& tensor) {
    constexpr std::string_view kAverage = "ema.";
    constexpr std::string_view kPresent = "model.";
    if (tensor.starts_with(kAverage)) return tensor.substr(kAverage.size());
    if (!tensor.starts_with(kPresent)) return "";
    std::string name = tensor.substr(kPresent.size());
    return file.find(std::string(kAverage) + name) == nullptr ? name : "";
  }

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const TensorBytes*> by_name_;
  std::deque<TensorBytes> parts_;             // of fused layers
  std::map<std::string, StoredCodes> codes_;  ///< by_name_ points into it.
};

torch::Tensor read(const TensorBytes& bytes) {
  auto tensor = torch::empty(bytes.shape, *dtype_of(bytes));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data, bytes.size);
  return tensor.to(torch::kFloat32);
}

/// As the file should have it; the first dimension of the positions may be larger.
std::vector<int64_t> shape_there(const PretrainedLayout& layout, const ParameterShape& parameter) {
  auto shape = parameter.sizes;
  if (layout.is_transposed(parameter.name)) std::reverse(shape.begin(), shape.end());
  return shape;
}

/// The rows of a table are the tokenizer's tokens.
std::string vocabulary_note(int64_t there, int64_t here) {
  if (there == here) return "";
  return fmt::format(
      " (the tokenizer has {} tokens, the table there {} rows: use the tokenizer that the weights "
      "were trained with, as data_config.tokenizer{})",
      here, there,
      here > there ? ", or drop the tokens that were added to it, or list them "
                     "as data_config.add_tokens, which adds rows for them"
                   : "");
}

/// The dimension of a weight that is its tokens; nullopt: none is.
std::optional<std::size_t> dimension_of_tokens(const PretrainedLayout& layout,
                                               const std::string& name) {
  if (name.ends_with(".lora_embedding_A")) return 1;
  const bool rows = name.ends_with(layout.words) || name.ends_with(kHead) ||
                    name.ends_with("lm_head.lora_B.weight");
  return rows ? std::optional<std::size_t>(0) : std::nullopt;
}

std::string difference(PretrainedLayout layout, const ParameterShape& parameter,
                       const TensorBytes* there, bool in_codes, int64_t new_rows) {
  if (there == nullptr) return parameter.name + " is missing";
  if (in_codes)
    layout.is_transposed = is_never_transposed;
  else if (!dtype_of(*there))
    return fmt::format("{} is of type {}, not float32, float16 or bfloat16", parameter.name,
                       there->dtype);
  auto wanted = shape_there(layout, parameter);
  const bool positions = layout.positions != nullptr && parameter.name.ends_with(layout.positions);
  if (positions && there->shape.size() == 2) wanted[0] = std::max(wanted[0], there->shape[0]);
  const auto tokens = dimension_of_tokens(layout, parameter.name);
  const bool grows = !there->shape.empty() && there->shape[0] < wanted[0] &&
                     wanted[0] - there->shape[0] <= new_rows;
  if (tokens && there->shape.size() == 2 &&
      (grows || is_padded_table(there->shape[*tokens], wanted[*tokens])))
    wanted[*tokens] = there->shape[*tokens];
  if (there->shape == wanted) return "";
  return fmt::format(
      "{} is [{}] there, [{}] here{}", parameter.name, fmt::join(there->shape, ", "),
      fmt::join(shape_there(layout, parameter), ", "),
      tokens && there->shape.size() == wanted.size()
          ? vocabulary_note(there->shape[*tokens], shape_there(layout, parameter)[*tokens])
          : "");
}

std::vector<std::string> all_differences(const PretrainedTensors& there,
                                         const PretrainedLayout& layout,
                                         const std::vector<ParameterShape>& parameters,
                                         int64_t new_rows) {
  std::vector<std::string> result;
  std::set<std::string> known;
  for (const ParameterShape& parameter : parameters) {
    known.insert(parameter.name);
    if (parameter.name.ends_with(layout.words)) known.insert(kHead);  // it may be tied
    if (layout.is_optional(parameter.name) && there.find(parameter.name) == nullptr) continue;
    const std::string text = difference(layout, parameter, there.find(parameter.name),
                                        there.codes_of(parameter.name) != nullptr, new_rows);
    if (!text.empty()) result.push_back(text);
  }
  for (const auto& [name, tensor] : there.all()) {
    if (known.count(name) == 0 && !layout.is_optional(name))
      result.push_back(name + " is not a parameter of this model");
  }
  return result;
}

void refuse(const PretrainedLayout& layout, const std::string& place,
            std::vector<std::string> differences) {
  constexpr std::size_t kMostShown = 12;
  const std::size_t count = differences.size();
  if (count > kMostShown) {
    differences.resize(kMostShown);
    differences.push_back(fmt::format("and {} more", count - kMostShown));
  }
  throw UserError(fmt::format("{}: {}: the weights do not fit: {}", layout.key, place,
                              fmt::join(differences, "; ")));
}

/// A tied head is the table of tokens, and a file may have it under either name. Two tables that
/// differ are kept apart by transformers, and by a configuration of own_head_note(), but no BERT.
void join_tied_head(PretrainedTensors& there, const PretrainedLayout& layout,
                    const std::vector<ParameterShape>& parameters) {
  const TensorBytes* head = there.find(kHead);
  const auto of = [&](std::string_view end) {
    return std::ranges::find_if(parameters,
                                [&](const auto& each) { return each.name.ends_with(end); });
  };
  const auto table = of(layout.words);
  if (head == nullptr || of(kHead) != parameters.end() || table == parameters.end()) return;
  const TensorBytes* words = there.find(table->name);
  if (words == nullptr) return there.add(table->name, head);
  if (words->size == head->size && std::memcmp(words->data, head->data, head->size) == 0) return;
  throw UserError(fmt::format(
      "{}: {}: {} differs from {}, and this model has one table for both; remove {} from the file",
      layout.key, there.file_of(head), head->name, words->name, head->name));
}

/// Where config.json has no quantization_config to refuse.
void refuse_other_codes(const PretrainedTensors& there, const PretrainedLayout& layout) {
  for (const auto& [name, tensor] : there.all()) {
    if (!name.ends_with(".qweight")) continue;
    throw UserError(fmt::format(
        "{}: {}: {} is a weight in codes of GPTQ or AWQ (qweight, qzeros, scales), which are not "
        "read; give the folder of the original model, and quantize.base to quantize it here",
        layout.key, there.file_of(tensor), tensor->name));
  }
}

/// Returns the tensors in `folder`, if they fit.
PretrainedTensors fitting_tensors(const std::string& folder, const PretrainedLayout& layout,
                                  const std::vector<ParameterShape>& parameters,
                                  int64_t new_rows = 0) {
  PretrainedTensors there(folder, layout);
  refuse_other_codes(there, layout);
  there.split(layout, parameters);
  join_tied_head(there, layout, parameters);
  auto differences = all_differences(there, layout, parameters, new_rows);
  if (!differences.empty()) refuse(layout, there.place(), std::move(differences));
  return there;
}

/// Further rows, and the last `new_tokens`, are of tokens that were never trained.
torch::Tensor with_new_rows(const torch::Tensor& table, int64_t rows, int64_t new_tokens) {
  const auto known = table.narrow(0, 0, std::min(table.size(0), rows - new_tokens));
  if (known.size(0) == rows) return known;
  const auto mean = known.to(torch::kFloat64).mean(0, /*keepdim=*/true).to(torch::kFloat32);
  return torch::cat({known, mean.expand({rows - known.size(0), -1})});
}

}  // namespace

bool is_padded_table(int64_t there, int64_t here) {
  constexpr int64_t kMultiple = 64;
  constexpr int64_t kMostPadding = 512;
  return there > here && there % kMultiple == 0 && there - here < kMostPadding &&
         here > kMostPadding;
}

const PretrainedLayout kBertLayout = {"bert_config.init_from",
                                      own_bert_name,
                                      is_never_transposed,
                                      is_never_optional,
                                      "position_embeddings.weight",
                                      "word_embeddings.weight",
                                      kConvertBert};
const PretrainedLayout kBertClassifierLayout = {
    "bert_config.init_from",      own_classifier_name,      is_never_transposed, is_of_classifier,
    "position_embeddings.weight", "word_embeddings.weight", kConvertBert};

const PretrainedLayout kPeftLayout = {"lora.init_from",
                                      own_peft_name,
                                      is_never_transposed,
                                      is_never_optional,
                                      nullptr,
                                      "word_embeddings.weight",
                                      "save the adapters as safetensors",
                                      {},
                                      "adapter_model.safetensors"};

void check_pretrained(const std::string& folder, const PretrainedLayout& layout,
                      const std::vector<ParameterShape>& shapes, int64_t new_rows) {
  if (!fs::is_regular_file(folder)) fitting_tensors(folder, layout, shapes, new_rows);
}

void check_pretrained(const std::string& folder, const CausalArchitecture& architecture,
                      const Config& config, int64_t vocab_size, int64_t new_rows) {
  check_pretrained(folder, *architecture.huggingface_layout(),
                   shapes_of(architecture.layout(config, vocab_size)), new_rows);
}

std::vector<std::string> load_pretrained(const std::string& folder, PretrainedLayout layout,
                                         const std::vector<NamedTensor>& parameters) {
  std::vector<ParameterShape> shapes;
  for (const NamedTensor& each : parameters)
    shapes.push_back({each.name, each.tensor.sizes().vec()});
  return load_pretrained(
      folder, std::move(layout), shapes,
      [&](std::size_t i, const torch::Tensor& values) { parameters[i].tensor.copy_(values); });
}

std::vector<std::string> load_pretrained(
    const std::string& folder, PretrainedLayout layout,
    const std::vector<ParameterShape>& parameters,
    const std::function<void(std::size_t i, const torch::Tensor& values)>& take,
    const std::function<void(std::size_t i, QuantizedWeight weight)>& take_codes, int64_t new_rows,
    int64_t new_tokens) {
  // Snapshots hold each tensor as the model has it.
  if (fs::is_regular_file(folder)) layout.is_transposed = is_never_transposed;
  const PretrainedTensors there = fitting_tensors(folder, layout, parameters, new_rows);
  const torch::NoGradGuard no_grad;
  std::vector<std::string> absent;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterShape& parameter = parameters[i];
    const int64_t rows = parameter.sizes[0];
    const TensorBytes* bytes = there.find(parameter.name);
    if (bytes == nullptr) {
      absent.push_back(parameter.name);
      continue;
    }
    const StoredCodes* codes = there.codes_of(parameter.name);
    const auto weight = codes == nullptr ? QuantizedWeight() : codes->read();
    const bool of_tokens = dimension_of_tokens(layout, parameter.name).has_value();
    if (codes != nullptr && take_codes && !of_tokens) {
      take_codes(i, weight);
      drop_pages(*bytes);
      continue;
    }
    auto tensor = codes == nullptr ? read(*bytes) : dequantize(weight, 0, weight.rows());
    if (codes == nullptr && layout.is_transposed(parameter.name)) tensor = tensor.t();
    tensor = new_rows > 0 && of_tokens ? with_new_rows(tensor, rows, new_tokens)
                                       : tensor.narrow(0, 0, rows);
    take(i, tensor.dim() == 2 ? tensor.narrow(1, 0, parameter.sizes[1]) : tensor);
    drop_pages(*bytes);
  }
  return absent;
}

}  // namespace ddp::train
