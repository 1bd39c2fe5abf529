#include "trainer/snapshot/state_buffer.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <stdexcept>

namespace ddp::train {
namespace {

// The exponent of Inf and NaN is all ones.
template <class Word>
bool holds_non_finite(const std::byte* data, std::size_t size, Word exponent) {
  bool found = false;
  for (std::size_t at = 0; at + sizeof(Word) <= size; at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, data + at, sizeof word);
    found |= (word & exponent) == exponent;
  }
  return found;
}

}  // namespace

const char* dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "F32";
    case torch::kFloat64:
      return "F64";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kUInt8:
      return "U8";
    default:
      throw std::logic_error("snapshot: no name for this dtype");
  }
}

std::size_t StateBuffer::bytes_of(const NamedTensors& like) {
  std::size_t total = 0;
  for (const auto& [name, tensor] : like) total += tensor.nbytes();
  return total;
}

StateBuffer::StateBuffer(const NamedTensors& like) {
  bool pinned = false;
  for (const auto& [name, tensor] : like) pinned = pinned || tensor.is_cuda();
  own_ = torch::empty({static_cast<int64_t>(bytes_of(like))},
                      torch::TensorOptions(torch::kUInt8).pinned_memory(pinned));
  lay_out(like, static_cast<std::byte*>(own_.mutable_data_ptr()));
}

StateBuffer::StateBuffer(const NamedTensors& like, std::byte* memory) { lay_out(like, memory); }

void StateBuffer::lay_out(const NamedTensors& like, std::byte* memory) {
  for (const auto& [name, tensor] : like) {
    copies_.push_back(torch::from_blob(memory + size_, tensor.sizes(),
                                       torch::TensorOptions(tensor.scalar_type())));
    bytes_.push_back({name, dtype_name(tensor.scalar_type()), tensor.sizes().vec(), memory + size_,
                      tensor.nbytes()});
    size_ += tensor.nbytes();
  }
}

void StateBuffer::copy_from(const NamedTensors& tensors, const ReadyEvent& ready) {
  const torch::NoGradGuard no_grad;
  std::optional<c10::StreamGuard> guard;
  if (ready) {
    const c10::impl::VirtualGuardImpl device(ready->device_type());
    guard.emplace(device.getStreamFromGlobalPool(ready->device()));
    ready->block(guard->current_stream());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i].second;
    if (tensor.is_cpu() && tensor.is_contiguous())
      std::memcpy(copies_[i].mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
    else
      copies_[i].copy_(tensor, /*non_blocking=*/own_.defined());
  }
  if (guard) guard->current_stream().synchronize();
}

ReadyEvent record_ready(torch::Device device) {
  if (device.is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

std::string first_non_finite(const std::vector<TensorBytes>& tensors) {
  for (const auto& tensor : tensors) {
    const bool found =
        (tensor.dtype == "F32" && holds_non_finite(tensor.data, tensor.size, 0x7F800000U)) ||
        (tensor.dtype == "F64" &&
         holds_non_finite(tensor.data, tensor.size, 0x7FF0000000000000ULL));
    if (found) return tensor.name;
  }
  return "";
}

}  // namespace ddp::train
