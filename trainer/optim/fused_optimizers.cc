#include "trainer/optim/fused_optimizers.h"

#include <algorithm>
#include <utility>

#include "trainer/optim/adam_kernel.h"

namespace ddp::train {
namespace {

torch::Tensor zeros_of(const torch::Tensor& parameter) {
  return torch::zeros_like(parameter, torch::MemoryFormat::Preserve).detach();
}

/// Picks the group's tensors from `all`, which has one per parameter.
std::vector<torch::Tensor> of_group(const std::vector<torch::Tensor>& all,
                                    const ParameterGroup& group) {
  std::vector<torch::Tensor> own;
  for (const std::size_t i : group.members) own.push_back(all[i]);
  return own;
}

std::vector<torch::Tensor> values_of(const std::vector<Parameter>& parameters,
                                     const ParameterGroup& group) {
  std::vector<torch::Tensor> own;
  for (const std::size_t i : group.members) own.push_back(parameters[i].tensor);
  return own;
}

}  // namespace

Adam::Adam(TrainedParameters trained, const OptimizerConfig& config, Decay decay)
    : Optimizer(std::move(trained)),
      config_(config),
      decay_(decay),
      exp_avgs_(parameters().size()),
      exp_avg_sqs_(parameters().size()),
      blocks_(parameters().size()) {
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const auto& [name, tensor, role, layout] = parameters()[i];
    if (has_8_bit_state(layout ? elements_in(layout->shape) : tensor.numel(), config)) {
      blocks_[i] = {{tensor, DynamicMap::signed_map()}, {tensor, DynamicMap::unsigned_map()}};
    } else {
      exp_avgs_[i] = zeros_of(tensor);
      exp_avg_sqs_[i] = zeros_of(tensor);
    }
  }
  const auto add_part = [&](std::vector<ParameterGroup>& groups, ParameterGroup group,
                            bool blocks) {
    std::erase_if(group.members, [&](std::size_t i) { return blocks_[i].has_value() != blocks; });
    if (!group.members.empty()) groups.push_back(std::move(group));
  };
  for (const ParameterGroup& group : this->groups()) {
    add_part(in_floats_, group, false);
    add_part(in_blocks_, group, true);
  }
}

std::vector<NamedTensor> Adam::state() const {
  std::vector<NamedTensor> result;
  const auto add = [&](const Parameter& p, const char* average, const torch::Tensor& tensor) {
    result.push_back({p.name + average, tensor, p.layout});
  };
  const auto add_blocks = [&](const Parameter& p, const char* average, const BlockAverage& blocks) {
    add(p, average, blocks.codes);
    add(p, average, blocks.absmax);
    result.back().name += kAbsmax;
    if (p.layout) result.back().layout = p.layout->in_blocks(kStateBlock);
  };
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Parameter& p = parameters()[i];
    if (blocks_[i]) {
      add_blocks(p, ".exp_avg", blocks_[i]->exp_avg);
      add_blocks(p, ".exp_avg_sq", blocks_[i]->exp_avg_sq);
    } else {
      add(p, ".exp_avg", exp_avgs_[i]);
      add(p, ".exp_avg_sq", exp_avg_sqs_[i]);
    }
  }
  return result;
}

bool Adam::update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale,
                  const CopyOf& copy_of) {
  bool copies_written = in_blocks_.empty();
  for (const ParameterGroup& group : in_blocks_)
    update_blocks(group, learning_rate * group.options.lr_mult, found_inf, scale);
  for (const ParameterGroup& group : in_floats_) {
    if (!update_group(group, learning_rate * group.options.lr_mult, found_inf, scale, copy_of))
      copies_written = false;
  }
  return copies_written;
}

bool Adam::update_group(const ParameterGroup& group, double learning_rate,
                        const torch::Tensor& found_inf, const torch::Tensor& scale,
                        const CopyOf& copy_of) {
  const AdamTensors tensors{values_of(parameters(), group), of_group(gradients(), group),
                            of_group(exp_avgs_, group), of_group(exp_avg_sqs_, group)};
  if (kernel_takes(tensors)) {
    std::vector<torch::Tensor> copies(tensors.weights.size());
    if (copy_of)
      std::transform(tensors.weights.begin(), tensors.weights.end(), copies.begin(), copy_of);
    adam_by_kernel(tensors, copies, step_count(), found_inf, scale,
                   numbers_of(group, learning_rate));
    return true;
  }
  if (scale.defined()) at::_foreach_mul_(tensors.gradients, scale);
  const std::vector<torch::Tensor> steps(group.members.size(), step_count());
  const auto fused_update = [&](auto&& kernel) {
    kernel(tensors.weights, tensors.gradients, tensors.exp_avgs, tensors.exp_avg_sqs,
           /*max_exp_avg_sqs=*/at::TensorList{}, steps, learning_rate, config_.betas[0],
           config_.betas[1], group.options.weight_decay, config_.eps, /*amsgrad=*/false,
           /*maximize=*/false, /*grad_scale=*/std::nullopt, found_inf);
  };
  if (decay_ == Decay::kDecoupled) {
    fused_update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused_update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
  return false;
}

void Adam::update_blocks(const ParameterGroup& group, double learning_rate,
                         const torch::Tensor& found_inf, const torch::Tensor& scale) {
  if (scale.defined()) at::_foreach_mul_(of_group(gradients(), group), scale);
  for (const std::size_t i : group.members) {
    const auto& weight = parameters()[i].tensor;
    adam_in_blocks(weight, weight.grad(), blocks_[i]->exp_avg, blocks_[i]->exp_avg_sq, step_count(),
                   found_inf, numbers_of(group, learning_rate));
  }
}

AdamNumbers Adam::numbers_of(const ParameterGroup& group, double learning_rate) const {
  return {learning_rate, config_.betas[0],           config_.betas[1], group.options.weight_decay,
          config_.eps,   decay_ == Decay::kDecoupled};
}

Sgd::Sgd(TrainedParameters trained, const OptimizerConfig& config)
    : Optimizer(std::move(trained)), config_(config), momentum_(momentum_of(config)) {
  if (momentum_ == 0.0) return;
  for (const Parameter& p : parameters()) buffers_.push_back(zeros_of(p.tensor));
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    result.push_back(
        {parameters()[i].name + ".momentum_buffer", buffers_[i], parameters()[i].layout});
  return result;
}

bool Sgd::update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor&,
                 const CopyOf&) {
  for (const ParameterGroup& group : groups())
    update_group(group, learning_rate * group.options.lr_mult, found_inf);
  return false;
}

void Sgd::update_group(const ParameterGroup& group, double learning_rate,
                       const torch::Tensor& found_inf) {
  const auto buffers = buffers_.empty() ? buffers_ : of_group(buffers_, group);
  at::_fused_sgd_(values_of(parameters(), group), of_group(gradients(), group), buffers,
                  group.options.weight_decay, momentum_, learning_rate, /*dampening=*/0.0,
                  config_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/std::nullopt, found_inf);
}

}  // namespace ddp::train
