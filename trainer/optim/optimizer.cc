#include "trainer/optim/optimizer.h"

#include <utility>

#include "trainer/optim/fused_optimizers.h"
#include "trainer/optim/muon.h"

namespace ddp::train {

Optimizer::Optimizer(TrainedParameters trained) : trained_(std::move(trained)) {
  TORCH_CHECK(!parameters().empty(), "an optimizer needs at least one parameter");
  complete_gradients();
  zero_grad();
  step_count_ = torch::zeros(
      {}, parameters().front().tensor.options().dtype(torch::kFloat32).requires_grad(false));
}

bool Optimizer::step(double learning_rate, const torch::Tensor& found_inf,
                     const torch::Tensor& scale, const CopyOf& copy_of) {
  const torch::NoGradGuard no_grad;
  step_count_.add_(1);
  if (scale.defined() && !scales_gradients()) at::_foreach_mul_(gradients(), scale);
  const bool copies_written = update(learning_rate, found_inf, scale, copy_of);
  step_count_.sub_(found_inf.reshape({}));
  return copies_written;
}

void Optimizer::zero_grad(bool set_to_none) {
  const torch::NoGradGuard no_grad;
  if (!set_to_none) return at::_foreach_zero_(gradients());
  for (const auto& p : parameters()) p.tensor.mutable_grad().reset();
}

void Optimizer::complete_gradients() {
  for (const auto& p : parameters()) {
    if (!p.tensor.grad().defined())
      p.tensor.mutable_grad() =
          torch::zeros_like(p.tensor, p.tensor.options().requires_grad(false));
  }
}

std::vector<torch::Tensor> Optimizer::gradients() const {
  std::vector<torch::Tensor> result;
  result.reserve(parameters().size());
  for (const auto& p : parameters()) result.push_back(p.tensor.grad());
  return result;
}

std::unique_ptr<Optimizer> make_optimizer(TrainedParameters trained,
                                          const OptimizerConfig& config) {
  switch (config.name) {
    case OptimizerName::kAdamW:
      return std::make_unique<Adam>(std::move(trained), config, Adam::Decay::kDecoupled);
    case OptimizerName::kAdam:
      return std::make_unique<Adam>(std::move(trained), config, Adam::Decay::kInGradient);
    case OptimizerName::kSgd:
      return std::make_unique<Sgd>(std::move(trained), config);
    case OptimizerName::kMuon:
      return std::make_unique<Muon>(std::move(trained), config);
  }
  TORCH_CHECK(false, "unknown optimizer");
}

torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm) {
  if (max_norm <= 0.0) return {};
  const torch::NoGradGuard no_grad;
  constexpr double kEps = 1e-6;  // torch.nn.utils.clip_grad_norm_
  return (max_norm / (norm + kEps)).clamp_max(1.0);
}

}  // namespace ddp::train
