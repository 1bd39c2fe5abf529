#include "trainer/interop/weight_files.h"

#include "trainer/runtime/files/atomic_file.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.sync();
  file.commit();
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& weights) {
  std::vector<torch::Tensor> alive;
  std::vector<TensorBytes> bytes;
  for (const NamedTensor& weight : weights) {
    alive.push_back(weight.tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous());
    const torch::Tensor& tensor = alive.back();
    bytes.push_back({weight.name, "F32", tensor.sizes().vec(),
                     static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  publish_safetensors(path, "", {{"format", "pt"}}, bytes);
}

}  // namespace ddp::train
