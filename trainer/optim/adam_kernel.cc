#include "trainer/optim/adam_kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "trainer/runtime/own_kernels.h"

namespace ddp::train {
namespace {

using Kernel = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                    const c10::List<std::optional<at::Tensor>>&, const at::Tensor&,
                    const at::Tensor&, const std::optional<at::Tensor>&, double, double, double,
                    double, double, bool);

const std::optional<c10::TypedOperatorHandle<Kernel>>& kernel() {
  static std::optional<c10::TypedOperatorHandle<Kernel>> found;
  if (found) return found;  // a later job of a sweep may load it
  const auto op = c10::Dispatcher::singleton().findSchema({"ddp_run::adam_", ""});
  if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) found = op->typed<Kernel>();
  return found;
}

bool like(const torch::Tensor& other, const torch::Tensor& weight) {
  return other.is_cuda() && other.scalar_type() == torch::kFloat32 &&
         other.strides() == weight.strides();
}

}  // namespace

bool kernel_takes(const AdamTensors& tensors) {
  if (!own_kernels_in_use || tensors.weights.empty() || !tensors.weights[0].is_cuda() || !kernel())
    return false;
  for (std::size_t i = 0; i < tensors.weights.size(); ++i) {
    const auto& weight = tensors.weights[i];
    if (!weight.is_non_overlapping_and_dense() || !like(weight, weight) ||
        !like(tensors.gradients[i], weight) || !like(tensors.exp_avgs[i], weight) ||
        !like(tensors.exp_avg_sqs[i], weight))
      return false;
  }
  return true;
}

void adam_by_kernel(const AdamTensors& tensors, const std::vector<torch::Tensor>& copies,
                    const torch::Tensor& step, const torch::Tensor& found_inf,
                    const torch::Tensor& scale, const AdamNumbers& numbers) {
  c10::List<std::optional<at::Tensor>> given;
  const auto if_defined = [](const torch::Tensor& x) {
    return x.defined() ? std::optional(x) : std::nullopt;
  };
  for (const auto& copy : copies) given.push_back(if_defined(copy));
  kernel()->call(tensors.weights, tensors.gradients, tensors.exp_avgs, tensors.exp_avg_sqs, given,
                 step, found_inf.reshape({}), if_defined(scale), numbers.learning_rate,
                 numbers.beta1, numbers.beta2, numbers.weight_decay, numbers.epsilon,
                 numbers.decoupled);
}

}  // namespace ddp::train
