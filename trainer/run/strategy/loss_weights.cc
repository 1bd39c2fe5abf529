#include "trainer/run/strategy/loss_weights.h"

#include <algorithm>

#include "trainer/parallel/device/device_wait.h"

namespace ddp::train {

LossWeights::LossWeights(const TargetCount& targets, int64_t batch_size, int64_t micro_batches,
                         ProcessGroup& group, int averaged_over)
    : full_(targets.per_sample * batch_size),
      always_full_(targets.always),
      micro_batches_(micro_batches),
      group_(group),
      averaged_over_(averaged_over) {}

torch::Tensor LossWeights::for_backward(const MicroBatchLoss& loss) const {
  const auto weighted =
      loss.targets == full_ ? loss.mean : loss.mean * in_full_batches(loss.targets);
  // The ranks' shares of the step need not be equal.
  return weighted / (static_cast<double>(micro_batches_) / averaged_over_);
}

void LossWeights::correct(const std::vector<torch::Tensor>& gradients,
                          const std::vector<MicroBatchLoss>& losses) const {
  if (always_full_) return;
  auto targets = torch::zeros({1}, torch::kFloat64);
  for (const auto& loss : losses) targets += static_cast<double>(loss.targets);
  group_.all_reduce_sum(targets);
  const int64_t full = full_ * micro_batches_;
  const torch::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, static_cast<double>(full) / std::max(1.0, targets.item<double>()));
}

double LossWeights::step_loss(const std::vector<MicroBatchLoss>& losses) const {
  std::vector<torch::Tensor> means;
  means.reserve(losses.size());
  for (const auto& loss : losses) means.push_back(loss.mean.reshape({}));
  const auto means_on_host = to_host(torch::stack(means)).to(torch::kFloat64);
  auto sums = torch::zeros({2}, torch::kFloat64);  // of losses, of weights in full micro-batches
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (losses[i].targets == 0) continue;
    const double weight = in_full_batches(losses[i].targets);
    sums[0] += means_on_host[static_cast<int64_t>(i)] * weight;
    sums[1] += weight;
  }
  group_.all_reduce_sum(sums);
  return sums[0].item<double>() / sums[1].item<double>();
}

}  // namespace ddp::train
