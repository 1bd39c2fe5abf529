#include "trainer/model/ops/weight_copies.h"

#include <atomic>

namespace ddp::train {
namespace {

std::atomic<WeightCopies*> current = nullptr;

torch::Tensor converted(const torch::Tensor& weight, int64_t padding) {
  const auto values = weight.detach().to(torch::kBFloat16);
  return padding == 0 ? values : at::constant_pad_nd(values, {0, 0, 0, padding});
}

std::pair<const void*, uint32_t> state_of(const torch::Tensor& weight) {
  return {weight.const_data_ptr(), weight._version()};
}

}  // namespace

WeightCopies::Step::Step(WeightCopies& copies, bool on_their_way) {
  copies.refresh(on_their_way);
  current = &copies;
}

WeightCopies::Step::~Step() { current = nullptr; }

void WeightCopies::refresh(bool on_their_way) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> values, weights;
  for (auto& [key, copy] : copies_) {
    const bool is_current = std::exchange(copy.written, std::nullopt) == state_of(copy.weight);
    if (is_current || !copy.weight.requires_grad()) continue;  // or frozen
    copy.outdated = on_their_way;
    if (on_their_way) continue;
    values.push_back(copy.without_padding());
    weights.push_back(copy.weight);
  }
  if (!values.empty()) at::_foreach_copy_(values, weights);
}

torch::Tensor WeightCopies::of(const torch::Tensor& weight) const {
  const auto found = copies_.find(weight.unsafeGetTensorImpl());
  return found == copies_.end() ? torch::Tensor() : found->second.without_padding();
}

void WeightCopies::written(const std::vector<torch::Tensor>& weights) {
  for (const auto& weight : weights) {
    const auto found = copies_.find(weight.unsafeGetTensorImpl());
    if (found != copies_.end()) found->second.written = state_of(weight);
  }
}

torch::Tensor WeightCopies::shared(const torch::Tensor& weight, int64_t padding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy& copy = copies_[weight.unsafeGetTensorImpl()];
  if (!copy.weight.defined()) copy = {weight, converted(weight, padding), std::nullopt};
  if (std::exchange(copy.outdated, false)) copy.without_padding().copy_(weight);
  const bool fits = copy.values.size(0) == weight.size(0) + padding;
  return fits ? copy.values : converted(weight, padding);
}

torch::Tensor bfloat16_copy(const torch::Tensor& weight, int64_t padding) {
  const torch::NoGradGuard no_grad;
  WeightCopies* const copies = current;
  if (copies == nullptr || !weight.is_leaf() || weight.scalar_type() != torch::kFloat32)
    return converted(weight, padding);
  return copies->shared(weight, padding);
}

}  // namespace ddp::train
