#include "trainer/model/weight_copies.h"

#include <atomic>
#include <vector>

namespace ddp::train {
namespace {

std::atomic<WeightCopies*> current = nullptr;

torch::Tensor converted(const torch::Tensor& weight, int64_t padding) {
  const auto values = weight.detach().to(torch::kBFloat16);
  return padding == 0 ? values : at::constant_pad_nd(values, {0, 0, 0, padding});
}

}  // namespace

WeightCopies::Step::Step(WeightCopies& copies) {
  copies.refresh();
  current = &copies;
}

WeightCopies::Step::~Step() { current = nullptr; }

void WeightCopies::refresh() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> values, weights;
  for (const auto& [key, copy] : copies_) {
    if (!copy.weight.requires_grad()) continue;  // frozen
    values.push_back(copy.values.narrow(0, 0, copy.weight.size(0)));
    weights.push_back(copy.weight);
  }
  if (!values.empty()) at::_foreach_copy_(values, weights);
}

torch::Tensor WeightCopies::shared(const torch::Tensor& weight, int64_t padding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy& copy = copies_[weight.unsafeGetTensorImpl()];
  if (!copy.weight.defined()) copy = {weight, converted(weight, padding)};
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
