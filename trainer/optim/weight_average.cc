#include "trainer/optim/weight_average.h"

#include <utility>

namespace ddp::train {

WeightAverage::WeightAverage(const std::vector<Parameter>& parameters, double decay)
    : decay_(decay) {
  if (decay == 0.0) return;
  parameters_ = parameters;
  for (const auto& p : parameters_) averages_.push_back(p.tensor.detach().clone());
}

void WeightAverage::update(const torch::Tensor& found_inf) {
  if (!enabled()) return;
  const torch::NoGradGuard no_grad;
  const auto share = (1.0 - decay_) * (1.0 - found_inf.reshape({}));
  for (std::size_t i = 0; i < averages_.size(); ++i)
    averages_[i].lerp_(parameters_[i].tensor, share);
}

// A shard is a view of its parameter, which has to stay one.
void WeightAverage::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    if (parameters_[i].layout) {
      const auto average = averages_[i].clone();
      averages_[i].copy_(parameters_[i].tensor);
      parameters_[i].tensor.copy_(average);
      continue;
    }
    auto weights = parameters_[i].tensor.detach();
    parameters_[i].tensor.set_data(averages_[i]);
    averages_[i] = std::move(weights);
  }
}

std::vector<NamedTensor> WeightAverage::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < averages_.size(); ++i)
    result.push_back({parameters_[i].name, averages_[i], parameters_[i].layout});
  return result;
}

void WeightAverage::restart() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(parameters_[i].tensor);
}

}  // namespace ddp::train
