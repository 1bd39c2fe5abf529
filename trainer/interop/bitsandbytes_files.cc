#include "trainer/interop/bitsandbytes_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/interop/weight_files.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/runtime/dynamic_map.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

using Tensors = std::map<std::string, const TensorBytes*>;

constexpr std::string_view kWeightEnd = ".weight";
constexpr const char* kQuantState = ".quant_state.bitsandbytes__";
constexpr const char* kIncomplete = "is not complete";
constexpr const char* kDamaged = "is damaged: a magnitude is negative or not finite";

[[noreturn]] void refuse(const std::string& folder, const std::string& name,
                         const std::string& problem) {
  throw UserError(fmt::format(
      "{}: {}: quantized by bitsandbytes, but {}; give the folder of the original model", folder,
      name, problem));
}

/// Removes and returns a tensor; null if there is none.
const TensorBytes* taken(Tensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return nullptr;
  const TensorBytes* const tensor = found->second;
  tensors.erase(found);
  return tensor;
}

template <class Values>
bool holds(const TensorBytes* tensor, const Values& values) {
  const std::size_t bytes = values.size() * sizeof(float);
  return tensor != nullptr && tensor->dtype == "F32" && tensor->size == bytes &&
         std::memcmp(tensor->data, values.data(), bytes) == 0;
}

torch::Tensor copied(const TensorBytes& bytes, std::vector<int64_t> shape, torch::ScalarType type) {
  auto tensor = torch::empty(shape, type);
  TORCH_CHECK(tensor.nbytes() == bytes.size, bytes.name, ": other sizes than its shape's");
  std::memcpy(tensor.mutable_data_ptr(), bytes.data, bytes.size);
  return tensor;
}

/// Neither magnitudes nor their scales are ever negative.
bool is_usable(const TensorBytes& scales) {
  for (std::size_t at = 0; at + sizeof(float) <= scales.size; at += sizeof(float)) {
    float value = 0.0F;
    std::memcpy(&value, scales.data + at, sizeof value);
    if (!std::isfinite(value) || value < 0) return false;
  }
  return true;
}

/// What is wrong with a weight in 4 bits, "" if nothing.
std::string problem_of(const nlohmann::json& state, const StoredCodes& codes,
                       const TensorBytes* map, const TensorBytes* nested_map) {
  if (!state.is_object() || state.value("quant_type", "") != "nf4") return "is not of type nf4";
  if (state.value("blocksize", 0) != kNf4Block) return "is not in blocks of 64";
  const auto& shape = codes.weight.shape;
  if (shape.size() != 2 || shape[1] <= 0 || shape[1] % kNf4Block != 0)
    return "has rows that blocks of 64 do not divide";
  const auto elements = static_cast<int64_t>(2 * codes.weight.size);
  const auto blocks = static_cast<std::size_t>(elements / kNf4Block);
  const std::size_t in_absmax = codes.nested_absmax == nullptr ? sizeof(float) : 1;
  const std::size_t nested = (blocks + kAbsmaxBlock - 1) / kAbsmaxBlock * sizeof(float);
  if (elements % shape[1] != 0 || elements / shape[1] != shape[0] || codes.absmax == nullptr ||
      codes.absmax->size != blocks * in_absmax ||
      (codes.nested_absmax != nullptr && codes.nested_absmax->size != nested))
    return kIncomplete;
  if (!is_usable(codes.nested_absmax == nullptr ? *codes.absmax : *codes.nested_absmax) ||
      !std::isfinite(codes.mean))
    return kDamaged;
  const bool known =
      holds(map, kNf4Values) &&
      (codes.nested_absmax == nullptr || (state.value("nested_blocksize", 0) == kAbsmaxBlock &&
                                          holds(nested_map, DynamicMap::signed_map().values())));
  return known ? "" : "has other values than nf4's";
}

StoredCodes taken_nf4(Tensors& tensors, const TensorBytes& weight, const std::string& name,
                      const TensorBytes& text, const std::string& folder) {
  const auto state = nlohmann::json::parse(
      std::string_view(reinterpret_cast<const char*>(text.data), text.size), nullptr, false);
  StoredCodes codes{weight, taken(tensors, name + ".absmax"),
                    taken(tensors, name + ".nested_absmax")};
  codes.weight.dtype = "U8";  // bnb_4bit_quant_storage gives the same bytes another name
  codes.weight.shape.clear();
  std::string problem = state.is_discarded() ? "its quant_state is not JSON" : "has no shape";
  if (state.is_object() && state.contains("shape") && state["shape"].is_array()) {
    for (const auto& size : state["shape"])
      codes.weight.shape.push_back(size.is_number_integer() ? size.get<int64_t>() : -1);
    if (state.contains("nested_offset") && state["nested_offset"].is_number())
      codes.mean = state["nested_offset"].get<float>();
    const TensorBytes* const map = taken(tensors, name + ".quant_map");
    const TensorBytes* const nested_map = taken(tensors, name + ".nested_quant_map");
    try {
      problem = problem_of(state, codes, map, nested_map);
    } catch (const nlohmann::json::exception&) {
      problem = "has a quant_state of other types";
    }
  }
  if (!problem.empty()) refuse(folder, name, problem);
  return codes;
}

/// The tensors of a weight in NF4.
void add_nf4(std::vector<NamedTensor>& tensors, const NamedTensor& weight,
             torch::ScalarType dtype) {
  if (weight.tensor.size(1) % kNf4Block != 0) {
    throw UserError(
        fmt::format("--quantize nf4: divides rows into blocks of {}, and {} has rows "
                    "of {}; leave it out",
                    kNf4Block, weight.name, weight.tensor.size(1)));
  }
  const auto codes = quantize(weight.tensor.detach().to(torch::kCPU), BaseFormat::kNf4);
  const std::string state =
      nlohmann::ordered_json{{"quant_type", "nf4"},
                             {"blocksize", kNf4Block},
                             {"dtype", python_dtype(dtype)},
                             {"shape", weight.tensor.sizes().vec()},
                             {"nested_blocksize", kAbsmaxBlock},
                             {"nested_dtype", "float32"},
                             {"nested_offset", codes.absmax_mean.item<float>()}}
          .dump();
  const auto table = [](const auto& values) {
    return torch::tensor(at::ArrayRef<float>(values.data(), values.size()));
  };
  const auto text = torch::empty({static_cast<int64_t>(state.size())}, torch::kUInt8);
  std::memcpy(text.mutable_data_ptr(), state.data(), state.size());
  tensors.push_back({weight.name, codes.codes.view({-1, 1})});
  tensors.push_back({weight.name + ".absmax", codes.absmax});
  tensors.push_back({weight.name + ".nested_absmax", codes.absmax_scales});
  tensors.push_back({weight.name + ".nested_quant_map", table(DynamicMap::signed_map().values())});
  tensors.push_back({weight.name + ".quant_map", table(kNf4Values)});
  tensors.push_back({weight.name + kQuantState + "nf4", text});
}

}  // namespace

StoredCodes StoredCodes::part(const TensorBytes& rows, int64_t first) const {
  StoredCodes result = *this;
  result.weight = rows;
  result.first_row = first;
  result.whole_rows = weight.shape[0];
  return result;
}

QuantizedWeight StoredCodes::read() const {
  const bool int8 = weight.dtype == "I8";
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  const int64_t per_row = int8 ? 1 : columns / kNf4Block;
  const int64_t first = first_row * per_row, count = rows * per_row;
  const int64_t all = std::max(whole_rows, rows) * per_row;
  QuantizedWeight result{int8 ? copied(weight, {rows, columns}, torch::kInt8)
                              : copied(weight, {rows, columns / 2}, torch::kUInt8),
                         {},
                         {},
                         {}};
  if (nested_absmax == nullptr) {
    result.absmax = copied(*absmax, {all}, torch::kFloat32).narrow(0, first, count).clone();
    return result;
  }
  const auto codes = copied(*absmax, {all}, torch::kUInt8);
  const auto scales =
      copied(*nested_absmax, {(all + kAbsmaxBlock - 1) / kAbsmaxBlock}, torch::kFloat32);
  if (whole_rows == 0) {
    result.absmax = codes;
    result.absmax_scales = scales;
    result.absmax_mean = torch::tensor(mean);
    return result;
  }
  result.absmax = torch::empty({count}, torch::kFloat32);
  dequantize_absmax(codes.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(), mean, first,
                    first + count, result.absmax.mutable_data_ptr<float>());
  return result;
}

std::map<std::string, StoredCodes> take_stored_codes(Tensors& tensors, const std::string& folder) {
  std::map<std::string, StoredCodes> result;
  std::vector<std::string> weights;
  for (const auto& [name, tensor] : tensors) {
    const bool in_codes = tensor->dtype == "U8" || tensor->dtype == "I8" ||
                          tensors.contains(name + kQuantState + "nf4") ||
                          tensors.contains(name + kQuantState + "fp4");
    if (name.ends_with(kWeightEnd) && in_codes) weights.push_back(name);
  }
  for (const std::string& name : weights) {
    const TensorBytes& weight = *tensors.at(name);
    const TensorBytes* const fp4 = taken(tensors, name + kQuantState + "fp4");
    const TensorBytes* const state = taken(tensors, name + kQuantState + "nf4");
    if (state != nullptr || fp4 != nullptr) {
      result[name] = taken_nf4(tensors, weight, name, state != nullptr ? *state : *fp4, folder);
      continue;
    }
    const std::string layer = name.substr(0, name.size() - kWeightEnd.size());
    const TensorBytes* const absmax = taken(tensors, layer + ".SCB");
    taken(tensors, layer + ".weight_format");
    const bool whole = weight.dtype == "I8" && weight.shape.size() == 2 && absmax != nullptr &&
                       absmax->dtype == "F32" && absmax->shape == std::vector{weight.shape[0]};
    if (!whole) refuse(folder, name, kIncomplete);
    if (!is_usable(*absmax)) refuse(folder, name, kDamaged);
    result[name] = {weight, absmax};
  }
  for (auto& [name, codes] : result) tensors[name] = &codes.weight;
  return result;
}

void write_nf4_safetensors(const std::string& path, std::vector<NamedTensor> weights,
                           torch::ScalarType dtype, const std::vector<std::string>& quantized) {
  std::vector<NamedTensor> tensors;
  for (NamedTensor& weight : weights) {
    if (std::find(quantized.begin(), quantized.end(), weight.name) == quantized.end()) {
      for (NamedTensor& same : in_dtype({weight}, dtype)) tensors.push_back(std::move(same));
    } else {
      add_nf4(tensors, weight, dtype);
    }
    weight.tensor.reset();
  }
  remove_stale_temporaries(path);
  publish_safetensors(path, "", {{"format", "pt"}}, tensor_bytes(tensors));
}

}  // namespace ddp::train
