// Operations of training on a GPU in one pass over device memory each, where torch takes several:
// ddp_run's operators of torch's dispatcher, whose kernels are in libtrainer_kernels.so
// (model/cuda/). Where they are not loaded, callers use torch's own operations.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace ddp::train::gpu {

/// Compiles the kernels for the current device, or takes them from the cache of compiled kernels in
/// `$XDG_CACHE_HOME/ddp_run` or `~/.cache/ddp_run`. Call once torch's CUDA libraries are loaded and
/// the device is set. Returns why they are not available, one line, or "".
std::string load_kernels();

/// Whether cross_entropy_() is loaded and takes rows of `columns` logits.
bool takes_rows_of(int64_t columns);
/// Whether cross_entropy_() is loaded and takes `logits`: bfloat16 [N, P] on a GPU, rows of a
/// multiple of 8.
bool takes_cross_entropy(const torch::Tensor& logits);

/// Returns the losses, float32 [N], of the first `classes` logits of each row, and turns `logits`
/// into the gradient of their sum. `targets`: int64 [N]; the loss and the gradient of a row with a
/// negative one are 0, as is the gradient of further columns. Not differentiable.
torch::Tensor cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets, int64_t classes);

}  // namespace ddp::train::gpu
