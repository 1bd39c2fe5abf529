#include "trainer/optim/adamw.h"

#include <utility>

namespace ddp::train {

AdamW::AdamW(std::vector<OptimizedParameter> parameters, const OptimizerConfig& config)
    : parameters_(std::move(parameters)), config_(config) {
  TORCH_CHECK(!parameters_.empty(), "AdamW needs at least one parameter");
  for (auto& p : parameters_) {
    p.exp_avg = torch::zeros_like(p.parameter, torch::MemoryFormat::Preserve).detach();
    p.exp_avg_sq = torch::zeros_like(p.parameter, torch::MemoryFormat::Preserve).detach();
    p.parameter.mutable_grad() = torch::zeros_like(p.parameter).detach();
  }
  step_count_ = torch::zeros(
      {}, parameters_.front().parameter.options().dtype(torch::kFloat32).requires_grad(false));
}

void AdamW::step(const std::optional<torch::Tensor>& found_inf) {
  const torch::NoGradGuard no_grad;
  step_count_.add_(1);
  update(true, found_inf);
  update(false, found_inf);
  if (found_inf) step_count_.sub_(found_inf->reshape({}));
}

void AdamW::update(bool decay, const std::optional<torch::Tensor>& found_inf) {
  std::vector<torch::Tensor> values;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> exp_avgs;
  std::vector<torch::Tensor> exp_avg_sqs;
  for (const auto& p : parameters_) {
    if (p.decay != decay) continue;
    values.push_back(p.parameter);
    gradients.push_back(p.parameter.grad());
    exp_avgs.push_back(p.exp_avg);
    exp_avg_sqs.push_back(p.exp_avg_sq);
  }
  if (values.empty()) return;
  const std::vector<torch::Tensor> steps(values.size(), step_count_);
  at::_fused_adamw_(values, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    config_.learning_rate, config_.betas[0], config_.betas[1],
                    decay ? config_.weight_decay : 0.0, config_.eps,
                    /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt, found_inf);
}

void AdamW::zero_grad() {
  const torch::NoGradGuard no_grad;
  at::_foreach_zero_(gradients());
}

std::vector<torch::Tensor> AdamW::gradients() const {
  std::vector<torch::Tensor> result;
  result.reserve(parameters_.size());
  for (const auto& p : parameters_) result.push_back(p.parameter.grad());
  return result;
}

torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& gradients, double max_norm) {
  const torch::NoGradGuard no_grad;
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2.0)), 2.0);
  if (max_norm > 0.0) {
    constexpr double kEps = 1e-6;  // torch.nn.utils.clip_grad_norm_
    at::_foreach_mul_(gradients, (max_norm / (norm + kEps)).clamp_max(1.0));
  }
  return norm;
}

}  // namespace ddp::train
