// Adam's and AdamW's update by trainer's own GPU kernel (model/ops/cuda/kernels.cu): ddp_run's
// operator of torch's dispatcher, which exists once the kernels are loaded.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

namespace ddp::train {

/// One entry per weight; all lists have equal length.
struct AdamTensors {
  std::vector<torch::Tensor> weights, gradients, exp_avgs, exp_avg_sqs;
};

struct AdamNumbers {
  double learning_rate, beta1, beta2, weight_decay, epsilon;
  bool decoupled;  ///< AdamW; Adam adds the weight decay to the gradient.
};

/// Whether this job has the kernel (own_kernels_in_use), and it takes `tensors`: float32 on a GPU,
/// each weight laid out as its gradient and averages.
bool kernel_takes(const AdamTensors& tensors);

/// Updates `tensors`, 64 a launch, and writes the new weights to `copies` as well: bfloat16 and
/// contiguous, undefined where there is none. `step`: the number of this update; gradients are
/// multiplied by `scale`, if defined; nothing changes if `found_inf` is 1. Float32 scalars on the
/// GPU.
void adam_by_kernel(const AdamTensors& tensors, const std::vector<torch::Tensor>& copies,
                    const torch::Tensor& step, const torch::Tensor& found_inf,
                    const torch::Tensor& scale, const AdamNumbers& numbers);

}  // namespace ddp::train
