// Operations on a GPU, of training and of quantized weights, in one pass over device memory each,
// where torch takes several: ddp_run's operators of torch's dispatcher, whose kernels are in
// libtrainer_kernels.so (model/ops/cuda/). Where they are not loaded, callers use torch's own
// operations. None of them is differentiable; gpu_ops.h has functions of autograd around them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace ddp::train {
struct QuantizedWeight;
}

namespace ddp::train::gpu {

/// Compiles the kernels for the current device, or takes them from the cache of compiled kernels in
/// `$XDG_CACHE_HOME/ddp_run` or `~/.cache/ddp_run`. Call once torch's CUDA libraries are loaded and
/// the device is set, for each job of a sweep. Returns why they are not available, one line, or "".
std::string load_kernels();
/// For a job without them, whatever an earlier one of its process has loaded.
void leave_out_kernels();
/// Whether this job has them.
bool loaded();
/// Why load_kernels() failed, one line; "" if it succeeded or was not called for this job.
const std::string& load_failure();

/// Whether cross_entropy_() is loaded and takes rows of `columns` logits.
bool takes_rows_of(int64_t columns);
/// Whether cross_entropy_() is loaded and takes `logits`: bfloat16 [N, P] on a GPU, rows of a
/// multiple of 8.
bool takes_cross_entropy(const torch::Tensor& logits);

/// Returns the losses, float32 [N], of the first `classes` logits of each row, and turns `logits`
/// into the gradient of their sum. `targets`: int64 [N]; the loss and the gradient of a row with a
/// negative one are 0, as is the gradient of further columns.
torch::Tensor cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets, int64_t classes);

/// Columns that add_norm_forward() takes: a multiple of 4 of at most this.
inline constexpr int64_t kMostNormColumns = 5120;

/// Returns residual + branch (float32 [.., C]; undefined without a branch), its norm in bfloat16
/// and statistics for the backward pass. `residual`: float32, `branch`: bfloat16; LayerNorm with
/// `weight` and `bias`, RMSNorm without a bias. All contiguous.
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_norm_forward(
    const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
    const torch::Tensor& weight, const std::optional<torch::Tensor>& bias, double epsilon);

/// Returns the gradients of the residual (float32 [.., C]), of the branch (bfloat16, undefined
/// unless `with_branch`) and, to be summed over their first dimension, of weight and bias: float32
/// [parts, 2, C], [parts, 1, C] without a bias. `x`: the sum; `dsum`: the gradient of its other
/// uses.
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_norm_backward(
    const torch::Tensor& dy, const std::optional<torch::Tensor>& dsum, const torch::Tensor& x,
    const torch::Tensor& weight, const torch::Tensor& statistics, bool with_bias, bool with_branch);

/// gelu(x), bfloat16 [.., C], C a multiple of 8; `tanh`: GPT-2's approximation.
torch::Tensor gelu(const torch::Tensor& x, bool tanh);

/// Returns the gradient of x, bfloat16 [N, C], from that of gelu(x), and sums over parts of its
/// rows, float32 [parts, C].
std::tuple<torch::Tensor, torch::Tensor> gelu_backward(const torch::Tensor& dy,
                                                       const torch::Tensor& x, bool tanh);

/// Returns sums over parts of the rows of `x`, bfloat16 [N, C], C a multiple of 8: float32
/// [parts, C].
torch::Tensor column_sums(const torch::Tensor& x);

/// Returns a, b, c, bfloat16 [.., C], C a multiple of 8, as the columns of one tensor [N, 3 C], and
/// sums over parts of its rows, float32 [parts, 3 C].
std::tuple<torch::Tensor, torch::Tensor> join_thirds(const torch::Tensor& a, const torch::Tensor& b,
                                                     const torch::Tensor& c);

/// Whether dequantize() and coded_product() are loaded and take `weight`.
bool takes_codes(const QuantizedWeight& weight);
/// Returns rows [first, last) in float32, bfloat16 or float16.
torch::Tensor dequantize(const QuantizedWeight& weight, int64_t first, int64_t last,
                         torch::ScalarType type);
/// Rows of coded_product().
inline constexpr int64_t kMostCodedRows = 4;
/// x [.., columns] of kMostCodedRows rows at most, contiguous float32 or bfloat16 -> x weight^T
/// [.., rows], with sums in float32.
torch::Tensor coded_product(const torch::Tensor& x, const QuantizedWeight& weight);

/// silu(gate) up, bfloat16 [.., C], C a multiple of 8.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
/// Returns the gradients of gate and up.
std::tuple<torch::Tensor, torch::Tensor> swiglu_backward(const torch::Tensor& dy,
                                                         const torch::Tensor& gate,
                                                         const torch::Tensor& up);

/// Returns q [B, T, H, D] and k [B, T, K, D], bfloat16, D a multiple of 16, turned by the angles of
/// T or of B T positions, float32 [.., D / 2]; `backward`: turned back.
std::tuple<torch::Tensor, torch::Tensor> rotate(const torch::Tensor& q, const torch::Tensor& k,
                                                const torch::Tensor& cos, const torch::Tensor& sin,
                                                bool backward);

}  // namespace ddp::train::gpu
