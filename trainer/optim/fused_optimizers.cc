#include "trainer/optim/fused_optimizers.h"

#include <utility>

namespace ddp::train {

Adam::Adam(std::vector<Parameter> parameters, const OptimizerConfig& config, Decay decay)
    : Optimizer(std::move(parameters)), config_(config), decay_(decay) {
  for (const auto& p : this->parameters()) {
    moments_.push_back({torch::zeros_like(p.tensor, torch::MemoryFormat::Preserve).detach(),
                        torch::zeros_like(p.tensor, torch::MemoryFormat::Preserve).detach()});
  }
}

std::vector<NamedTensor> Adam::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const std::string& name = parameters()[i].name;
    result.push_back({name + ".exp_avg", moments_[i].exp_avg});
    result.push_back({name + ".exp_avg_sq", moments_[i].exp_avg_sq});
  }
  return result;
}

void Adam::update(double learning_rate, const torch::Tensor& found_inf) {
  update_group(true, learning_rate, found_inf);
  update_group(false, learning_rate, found_inf);
}

void Adam::update_group(bool decay, double learning_rate, const torch::Tensor& found_inf) {
  std::vector<torch::Tensor> values;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> exp_avgs;
  std::vector<torch::Tensor> exp_avg_sqs;
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const Parameter& p = parameters()[i];
    if (p.decay != decay) continue;
    values.push_back(p.tensor);
    gradients.push_back(p.tensor.grad());
    exp_avgs.push_back(moments_[i].exp_avg);
    exp_avg_sqs.push_back(moments_[i].exp_avg_sq);
  }
  if (values.empty()) return;
  const std::vector<torch::Tensor> steps(values.size(), step_count());
  const auto fused_update = [&](auto&& kernel) {
    kernel(values, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/at::TensorList{}, steps,
           learning_rate, config_.betas[0], config_.betas[1], decay ? config_.weight_decay : 0.0,
           config_.eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
           found_inf);
  };
  if (decay_ == Decay::kDecoupled) {
    fused_update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused_update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

Sgd::Sgd(std::vector<Parameter> parameters, const OptimizerConfig& config)
    : Optimizer(std::move(parameters)), config_(config), momentum_(momentum_of(config)) {
  if (momentum_ == 0.0) return;
  for (const auto& p : this->parameters())
    buffers_.push_back(torch::zeros_like(p.tensor, torch::MemoryFormat::Preserve).detach());
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    result.push_back({parameters()[i].name + ".momentum_buffer", buffers_[i]});
  return result;
}

void Sgd::update(double learning_rate, const torch::Tensor& found_inf) {
  update_group(true, learning_rate, found_inf);
  update_group(false, learning_rate, found_inf);
}

void Sgd::update_group(bool decay, double learning_rate, const torch::Tensor& found_inf) {
  std::vector<torch::Tensor> values;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> buffers;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Parameter& p = parameters()[i];
    if (p.decay != decay) continue;
    values.push_back(p.tensor);
    gradients.push_back(p.tensor.grad());
    if (!buffers_.empty()) buffers.push_back(buffers_[i]);
  }
  if (values.empty()) return;
  at::_fused_sgd_(values, gradients, buffers, decay ? config_.weight_decay : 0.0, momentum_,
                  learning_rate, /*dampening=*/0.0, config_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/std::nullopt, found_inf);
}

}  // namespace ddp::train
