#include "trainer/data/batch.h"

namespace ddp::train {

const torch::Tensor& Batch::operator[](std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [key, tensor] : tensors) names += (names.empty() ? "" : ", ") + key;
  TORCH_CHECK(false, "the batch has no tensor '", name, "'; it has ",
              names.empty() ? "none" : names, "; SampleSource::collate() makes them");
}

torch::Tensor Batch::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? torch::Tensor() : found->second;
}

Batch Batch::to(torch::Device device) const {
  Batch moved = *this;
  for (auto& [name, tensor] : moved.tensors) tensor = tensor.to(device, /*non_blocking=*/true);
  return moved;
}

}  // namespace ddp::train
