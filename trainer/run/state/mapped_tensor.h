// Tensors in memory of their own, for what is gathered once in a while: malloc would keep it.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "trainer/parallel/device/page_lock.h"

namespace ddp::train {

/// Zeros on the CPU, whose memory goes back to the system with the last tensor that uses it.
inline torch::Tensor mapped_zeros(at::IntArrayRef sizes, torch::ScalarType type) {
  const auto bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  auto memory = std::make_shared<MappedMemory>(bytes);
  return torch::from_blob(
      memory->data(), sizes, [memory](void*) {}, torch::TensorOptions(type));
}

}  // namespace ddp::train
