#include "trainer/model/blocks/chunked_loss.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <optional>

#include "trainer/model/ops/block_ops.h"
#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/model/ops/weight_copies.h"

namespace ddp::train {
namespace {

using ops::wide;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_autocast_to_bfloat16(const torch::Tensor& x) {
  return x.is_cuda() && at::autocast::is_autocast_enabled(at::kCUDA) &&
         at::autocast::get_autocast_dtype(at::kCUDA) == torch::kBFloat16;
}

/// The gradients with respect to both inputs, filled chunk by chunk.
struct Gradients {
  torch::Tensor x_NC;
  bool of_weight;           ///< False: it is frozen.
  torch::Tensor weight_PC;  ///< Undefined before the first chunk; the first V rows count.

  void add(int64_t first, const torch::Tensor& logits_gradient_nP, const torch::Tensor& x_nC,
           const torch::Tensor& table_PC, int64_t V) {
    auto dx_nC = x_NC.narrow(0, first, x_nC.size(0));
    const auto type = logits_gradient_nP.scalar_type();
    if (dx_nC.scalar_type() == type && table_PC.scalar_type() == type)
      at::mm_out(dx_nC, logits_gradient_nP, table_PC);
    else
      dx_nC.copy_(at::matmul(logits_gradient_nP, table_PC));
    if (of_weight) add_to_weight(logits_gradient_nP, x_nC, V);
  }

  /// The first V rows of the weight's gradient; undefined if it is frozen.
  torch::Tensor of_rows(int64_t V) const {
    return of_weight ? weight_PC.narrow(0, 0, V) : torch::Tensor();
  }

  // The loss's scale is applied in the backward pass only: in float16 the sum over a frequent
  // target's rows could be too large for any scale, and every step would be skipped.
  void add_to_weight(const torch::Tensor& logits_gradient_nP, const torch::Tensor& x_nC,
                     int64_t V) {
    const auto device = x_nC.device().type();
    if (x_nC.is_cuda() && at::autocast::is_autocast_enabled(device)) {
      const auto type = at::autocast::get_autocast_dtype(device);
      // With the padding: products of an odd number of rows take twice the time.
      const auto gradient_Pn = logits_gradient_nP.to(type).t();
      if (weight_PC.defined())
        at::addmm_out(weight_PC, weight_PC, gradient_Pn, x_nC.to(type), torch::kFloat32);
      else
        weight_PC = at::mm(gradient_Pn, x_nC.to(type), torch::kFloat32);
      return;
    }
    const auto x = wide(x_nC);
    if (!weight_PC.defined()) weight_PC = torch::zeros({V, x.size(1)}, x.options());
    weight_PC.addmm_(logits_gradient_nP.narrow(1, 0, V).t(), x);
  }
};

/// Sum of the losses of one chunk; turns `logits_nP` into its gradient, whose columns beyond V are
/// 0.
torch::Tensor loss_and_gradient(torch::Tensor& logits_nP, const torch::Tensor& targets_n, int64_t V,
                                const VocabularyShare& share, double smoothing) {
  if (share.ranks) {
    logits_nP = wide(logits_nP);
    auto own_nV = logits_nP.narrow(1, 0, V);
    return divided_cross_entropy_(own_nV, targets_n, share).sum();
  }
  return ops::cross_entropy_sum_(logits_nP, targets_n, V, smoothing);
}

/// Turns logits into softcap tanh(logits / softcap), and returns the derivative.
torch::Tensor softcap_(torch::Tensor& logits, double softcap) {
  logits.div_(softcap).tanh_();
  const auto slope = 1.0 - logits * logits;
  logits.mul_(softcap);
  return slope;
}

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_NC,
                               const torch::Tensor& weight_VC, const torch::Tensor& targets_N,
                               int64_t chunk, int64_t padding, const VocabularyShare& share,
                               double softcap, double smoothing,
                               const std::optional<torch::Tensor>& low_NR,
                               const std::optional<torch::Tensor>& up_VR) {
    const auto up_PR = up_VR ? padded_table(*up_VR, padding) : torch::Tensor();
    const auto table_PC = is_autocast_to_bfloat16(weight_VC) ? bfloat16_copy(weight_VC, padding)
                                                             : padded_table(weight_VC, padding);
    const int64_t V = weight_VC.size(0);
    auto sum = torch::zeros({}, wide(torch::empty({0}, weight_VC.options())).options());
    Gradients gradients{torch::empty_like(x_NC), weight_VC.requires_grad(), {}};
    Gradients of_adapter{
        low_NR ? torch::empty_like(*low_NR) : torch::Tensor(), up_VR && up_VR->requires_grad(), {}};
    for (int64_t first = 0; first < x_NC.size(0); first += chunk) {
      const int64_t count = std::min(chunk, x_NC.size(0) - first);
      const auto x_nC = x_NC.narrow(0, first, count);
      const auto low_nR = low_NR ? low_NR->narrow(0, first, count) : torch::Tensor();
      auto logits_nP = at::linear(x_nC, table_PC);
      if (low_NR) logits_nP.addmm_(low_nR.to(logits_nP), up_PR.to(logits_nP).t());
      const auto slope_nP = softcap > 0.0 ? softcap_(logits_nP, softcap) : torch::Tensor();
      sum.add_(
          loss_and_gradient(logits_nP, targets_N.narrow(0, first, count), V, share, smoothing));
      if (softcap > 0.0) logits_nP.mul_(slope_nP);
      gradients.add(first, logits_nP, x_nC, table_PC, V);
      if (low_NR) of_adapter.add(first, logits_nP, low_nR, up_PR, V);
    }
    context->save_for_backward(
        {gradients.x_NC, gradients.of_rows(V), of_adapter.x_NC, of_adapter.of_rows(V)});
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto scaled = [&](std::size_t i) {
      return saved[i].defined() ? saved[i] * gradients[0].to(saved[i].scalar_type())
                                : torch::Tensor();
    };
    return {scaled(0), scaled(1), {}, {}, {}, {}, {}, {}, scaled(2), scaled(3)};
  }
};

}  // namespace

torch::Tensor padded_table(const torch::Tensor& weight_VC, int64_t padding) {
  if (padding == 0) return weight_VC;
  const auto device = weight_VC.device().type();
  // Cast first: the copy that autocast makes anyway is the smaller one.
  const auto weight =
      at::autocast::is_autocast_enabled(device)
          ? at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), weight_VC, device)
          : weight_VC;
  return at::constant_pad_nd(weight, {0, 0, 0, padding});
}

bool is_cross_entropy_fused(const torch::Tensor& weight_VC, int64_t padding) {
  return is_autocast_to_bfloat16(weight_VC) && gpu::takes_rows_of(weight_VC.size(0) + padding);
}

torch::Tensor chunked_cross_entropy_sum(const torch::Tensor& x_NC, const torch::Tensor& weight_VC,
                                        const torch::Tensor& targets_N, int64_t chunk,
                                        int64_t padding, const VocabularyShare& share,
                                        double softcap, double smoothing,
                                        const LowRankPair& adapter) {
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return ChunkedCrossEntropy::apply(x_NC, weight_VC, targets_N, chunk, padding, share, softcap,
                                    smoothing, given(adapter.x_NR), given(adapter.weight_VR));
}

}  // namespace ddp::train
