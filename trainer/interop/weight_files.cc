#include "trainer/interop/weight_files.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <exception>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {

std::vector<NamedTensor> in_dtype(std::vector<NamedTensor> weights, torch::ScalarType dtype) {
  for (NamedTensor& weight : weights) {
    const torch::Tensor given = weight.tensor.detach().to(torch::kCPU);
    weight.tensor = given.to(dtype).contiguous();
    if (dtype == torch::kFloat32 || torch::isinf(weight.tensor).sum().item<int64_t>() ==
                                        torch::isinf(given).sum().item<int64_t>())
      continue;
    throw UserError(fmt::format("export: {} has numbers beyond the range of {}; use --dtype {}fp32",
                                weight.name, c10::toString(dtype),
                                dtype == torch::kHalf ? "bf16 or " : ""));
  }
  return weights;
}

std::string file_name(std::string name, const PretrainedLayout& layout,
                      std::string_view model_type) {
  for (const FusedLayers& layer : layout.fused) {
    for (const std::string& part : layer.parts) {
      const std::string end = fmt::format(".{}.weight", part);
      if (layer.model_type == model_type && name.ends_with(end))
        name.replace(name.size() - end.size(), end.size(), fmt::format(".{}.weight", layer.theirs));
    }
  }
  return name;
}

std::vector<FileWeight> fused_weights(const std::vector<NamedTensor>& weights,
                                      const PretrainedLayout& layout, std::string_view model_type) {
  std::vector<FileWeight> result;
  for (const NamedTensor& weight : weights) {
    std::string name = file_name(weight.name, layout, model_type);
    if (result.empty() || result.back().name != name) result.push_back({std::move(name), {}});
    result.back().parts.push_back(weight.tensor.detach());
  }
  return result;
}

const char* python_dtype(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 ? "float32" : dtype == torch::kBFloat16 ? "bfloat16" : "float16";
}

std::vector<TensorBytes> tensor_bytes(const std::vector<NamedTensor>& weights) {
  std::vector<TensorBytes> bytes;
  for (const NamedTensor& weight : weights) {
    const torch::Tensor& tensor = weight.tensor;
    const char* const type = tensor.scalar_type() == torch::kFloat32    ? "F32"
                             : tensor.scalar_type() == torch::kBFloat16 ? "BF16"
                             : tensor.scalar_type() == torch::kFloat16  ? "F16"
                                                                        : "U8";
    bytes.push_back({weight.name, type, tensor.sizes().vec(),
                     static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return bytes;
}

void write_text(const std::string& path, const std::string& text) {
  remove_stale_temporaries(path);
  publish_text(path, text);
}

void write_safetensors(const std::string& path, std::vector<NamedTensor> weights,
                       torch::ScalarType dtype) {
  weights = in_dtype(std::move(weights), dtype);
  remove_stale_temporaries(path);
  publish_safetensors(path, "", {{"format", "pt"}}, tensor_bytes(weights));
}

// torch::pickle_save() tags its dicts with TorchScript types, which weights_only=True refuses.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors) {
  c10::Dict<std::string, torch::Tensor> state;
  for (const NamedTensor& tensor : tensors)
    state.insert(tensor.name, tensor.tensor.detach().to(torch::kCPU).contiguous());
  std::string pickle;
  torch::jit::Pickler pickler(
      [&](const char* bytes, std::size_t size) { pickle.append(bytes, size); }, nullptr, nullptr,
      nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(state);
  pickler.stop();

  remove_stale_temporaries(path);
  AtomicFile file(path);
  std::exception_ptr
      failure;  // kept until the writer is done: it is C below, and writes when destroyed
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
      try {
        if (failure == nullptr) file.write(bytes, size);
      } catch (const RunError&) {
        failure = std::current_exception();
      }
      return size;
    });
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    const auto& data = pickler.tensorData();
    for (std::size_t i = 0; i < data.size(); ++i)
      writer.writeRecord("data/" + std::to_string(i), data[i].const_data_ptr(), data[i].nbytes());
    writer.writeEndOfFile();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  file.sync();
  file.commit();
}

}  // namespace ddp::train
