#include "trainer/model/ops/block_ops.h"

#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/model/ops/gpu_ops.h"
#include "trainer/model/ops/llama_ops.h"

namespace ddp::train::ops {

torch::Tensor wide(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

Normed add_norm(const ResidualStream& stream, const NormWeights& norm) {
  const bool is_rms = !norm.bias.defined();
  if (gpu::takes_norm(stream.x)) return gpu::add_norm(stream.x, stream.left(), norm);
  if (is_rms && fused::takes_products(stream.x))
    return fused::add_rms_norm(stream.x, stream.left(), norm);
  const auto sum = stream.sum();
  return {sum,
          is_rms ? rms_norm(sum, norm)
                 : at::layer_norm(sum, norm.weight.sizes(), norm.weight, norm.bias, norm.epsilon)};
}

torch::Tensor rms_norm(const torch::Tensor& x, const NormWeights& norm) {
  if (fused::takes(x) && fused::takes(norm.weight)) return fused::add_rms_norm(x, {}, norm).y;
  return at::rms_norm(wide(x), norm.weight.sizes(), norm.weight, norm.epsilon).to(x.scalar_type());
}

torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
  return gpu::takes_product(x) ? gpu::linear(x, weight, bias) : at::linear(x, weight, bias);
}

std::vector<torch::Tensor> linear_to_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                           const torch::Tensor& bias, int64_t heads) {
  return gpu::takes_heads(x, weight) ? gpu::linear_to_heads(x, weight, bias, heads)
                                     : in_heads(linear(x, weight, bias), heads);
}

std::vector<torch::Tensor> in_heads(const torch::Tensor& y, int64_t heads) {
  return y.unflatten(-1, {3, heads, -1}).unbind(-3);
}

torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh, bool fused_cpu) {
  if (fused_cpu && fused::takes_products(x)) return fused::linear_gelu(x, weight, bias, tanh);
  if (gpu::takes_product(x)) return gpu::linear_gelu(x, weight, bias, tanh);
  return at::gelu(at::linear(x, weight, bias), tanh ? "tanh" : "none");
}

torch::Tensor softcapped(const torch::Tensor& x, double cap) { return (x / cap).tanh() * cap; }

torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  if (gpu::takes_swiglu(gate, up)) return gpu::fused_swiglu(gate, up);
  const bool fuses = fused::takes(gate) && fused::takes(up);
  return fuses ? fused::swiglu(gate, up) : at::silu(gate) * up;
}

torch::Tensor dropout(const torch::Tensor& x_BSC, double p, const fused::Places& rows,
                      bool fused_cpu) {
  if (p == 0.0) return x_BSC;
  if (fused_cpu && fused::takes(x_BSC)) return fused::dropout(x_BSC, p, rows);
  if (!rows.divided()) return at::dropout(x_BSC, p, /*train=*/true);
  auto sizes = x_BSC.sizes().vec();
  sizes[1] = rows.all;
  const auto kept_of_all = torch::empty(sizes, x_BSC.options()).bernoulli_(1.0 - p).div_(1.0 - p);
  // A copy: the backward pass would keep all of a view's tensor.
  return x_BSC * kept_of_all.narrow(1, rows.first, rows.here).clone();
}

torch::Tensor cross_entropy_sum_(torch::Tensor& logits_nP, const torch::Tensor& targets_n,
                                 int64_t V, double smoothing) {
  if (smoothing == 0.0 && gpu::takes_cross_entropy(logits_nP))
    return gpu::cross_entropy_(logits_nP, targets_n, V).sum();
  logits_nP = wide(logits_nP);
  auto logits_nV = logits_nP.narrow(1, 0, V);
  const auto counts_n1 = targets_n.ge(0).unsqueeze(1);
  const auto index_n1 = targets_n.clamp_min(0).unsqueeze(1);
  const auto normaliser_n1 = logits_nV.logsumexp(1, /*keepdim=*/true);
  auto loss_n1 = normaliser_n1 - logits_nV.gather(1, index_n1);
  if (smoothing > 0.0)
    loss_n1.lerp_(normaliser_n1 - logits_nV.mean(1, /*keepdim=*/true), smoothing);
  logits_nV.sub_(normaliser_n1).exp_();
  logits_nV.scatter_add_(1, index_n1, torch::full_like(loss_n1, smoothing - 1.0));
  if (smoothing > 0.0) logits_nV.sub_(smoothing / static_cast<double>(V));
  logits_nV.mul_(counts_n1);
  return (loss_n1 * counts_n1).sum();
}

}  // namespace ddp::train::ops
