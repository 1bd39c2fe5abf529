#include "trainer/snapshot/state_buffer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "trainer/parallel/device/cuda_module.h"

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

StateBuffer::StateBuffer(const NamedTensors& like)
    : own_(std::make_unique<MappedMemory>(bytes_of(like))) {
  lay_out(like, own_->data());
}

StateBuffer::StateBuffer(const NamedTensors& like, std::byte* memory) { lay_out(like, memory); }

std::shared_ptr<StateBuffer> StateBuffer::of_copy(const NamedTensors& tensors) {
  std::shared_ptr<StateBuffer> buffer(new StateBuffer);
  for (const auto& [name, tensor] : tensors) buffer->add(name, tensor.contiguous());
  buffer->begun_ = true;
  return buffer;
}

void StateBuffer::lay_out(const NamedTensors& like, std::byte* memory) {
  for (const auto& [name, tensor] : like)
    add(name, torch::from_blob(memory + size_, tensor.sizes(),
                               torch::TensorOptions(tensor.scalar_type())));
  lock_pages(like, memory);
}

void StateBuffer::add(const std::string& name, const torch::Tensor& copy) {
  copies_.push_back(copy);
  bytes_.push_back({name, dtype_name(copy.scalar_type()), copy.sizes().vec(),
                    static_cast<const std::byte*>(copy.const_data_ptr()), copy.nbytes()});
  size_ += copy.nbytes();
}

void StateBuffer::lock_pages(const NamedTensors& like, std::byte* memory) {
  const bool on_gpu = std::any_of(like.begin(), like.end(),
                                  [](const auto& entry) { return entry.second.is_cuda(); });
  if (on_gpu) lock_ = std::make_unique<PageLock>(loaded_cuda_module(), memory, size_);
}

void StateBuffer::begin_copy(const NamedTensors& tensors, const ReadyEvent& ready) {
  const torch::NoGradGuard no_grad;
  copied_ = nullptr;
  if (ready) {
    // To memory that is not locked the driver copies while this thread waits.
    const bool waits = lock_ && !lock_->on();
    begun_ = !waits || device_came_to(ready);
    if (!begun_) return;
    const auto queue = ready->side_queue();
    for (std::size_t i = 0; i < tensors.size(); ++i) queue->copy(copies_[i], tensors[i].second);
    copied_ = queue->mark();
    return;
  }
  begun_ = true;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i].second;
    if (tensor.is_cpu() && tensor.is_contiguous())
      std::memcpy(copies_[i].mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
    else
      copies_[i].copy_(tensor);
  }
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
