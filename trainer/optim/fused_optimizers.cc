#include "trainer/optim/fused_optimizers.h"

#include <utility>

namespace ddp::train {
namespace {

std::vector<torch::Tensor> zeros_like_each(const std::vector<Parameter>& parameters) {
  std::vector<torch::Tensor> zeros;
  for (const auto& p : parameters)
    zeros.push_back(torch::zeros_like(p.tensor, torch::MemoryFormat::Preserve).detach());
  return zeros;
}

/// The parameters with weight decay, or those without: what one fused call updates.
struct ParameterGroup {
  ParameterGroup(const std::vector<Parameter>& parameters, bool decay) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].decay != decay) continue;
      members.push_back(i);
      values.push_back(parameters[i].tensor);
      gradients.push_back(parameters[i].tensor.grad());
    }
  }

  /// Of one tensor for each parameter, those of the members.
  std::vector<torch::Tensor> of(const std::vector<torch::Tensor>& all) const {
    std::vector<torch::Tensor> own;
    for (const std::size_t i : members) own.push_back(all[i]);
    return own;
  }

  std::vector<std::size_t> members;
  std::vector<torch::Tensor> values;
  std::vector<torch::Tensor> gradients;
};

}  // namespace

Adam::Adam(std::vector<Parameter> parameters, const OptimizerConfig& config, Decay decay)
    : Optimizer(std::move(parameters)),
      config_(config),
      decay_(decay),
      exp_avgs_(zeros_like_each(this->parameters())),
      exp_avg_sqs_(zeros_like_each(this->parameters())) {}

std::vector<NamedTensor> Adam::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < exp_avgs_.size(); ++i) {
    const std::string& name = parameters()[i].name;
    result.push_back({name + ".exp_avg", exp_avgs_[i]});
    result.push_back({name + ".exp_avg_sq", exp_avg_sqs_[i]});
  }
  return result;
}

void Adam::update(double learning_rate, const torch::Tensor& found_inf) {
  update_group(true, learning_rate, found_inf);
  update_group(false, learning_rate, found_inf);
}

void Adam::update_group(bool decay, double learning_rate, const torch::Tensor& found_inf) {
  const ParameterGroup group(parameters(), decay);
  if (group.values.empty()) return;
  const std::vector<torch::Tensor> steps(group.values.size(), step_count());
  const auto fused_update = [&](auto&& kernel) {
    kernel(group.values, group.gradients, group.of(exp_avgs_), group.of(exp_avg_sqs_),
           /*max_exp_avg_sqs=*/at::TensorList{}, steps, learning_rate, config_.betas[0],
           config_.betas[1], decay ? config_.weight_decay : 0.0, config_.eps, /*amsgrad=*/false,
           /*maximize=*/false, /*grad_scale=*/std::nullopt, found_inf);
  };
  if (decay_ == Decay::kDecoupled) {
    fused_update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused_update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

Sgd::Sgd(std::vector<Parameter> parameters, const OptimizerConfig& config)
    : Optimizer(std::move(parameters)), config_(config), momentum_(momentum_of(config)) {
  if (momentum_ != 0.0) buffers_ = zeros_like_each(this->parameters());
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
  const ParameterGroup group(parameters(), decay);
  if (group.values.empty()) return;
  const auto buffers = buffers_.empty() ? buffers_ : group.of(buffers_);
  at::_fused_sgd_(group.values, group.gradients, buffers, decay ? config_.weight_decay : 0.0,
                  momentum_, learning_rate, /*dampening=*/0.0, config_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/std::nullopt, found_inf);
}

}  // namespace ddp::train
