#include "trainer/model/blocks/parallel_layers.h"

#include "trainer/model/ops/block_ops.h"

namespace ddp::train {

ColumnLinearImpl::ColumnLinearImpl(int64_t in, int64_t out, bool with_bias,
                                   const LayerOptions& layers)
    : AdaptableLinearImpl(in, out, with_bias), layers_(layers) {}

torch::Tensor ColumnLinearImpl::forward(const torch::Tensor& x_BSC, const cpu::Places& rows) {
  return product(enter(x_BSC, rows));
}

std::vector<torch::Tensor> ColumnLinearImpl::to_heads(const torch::Tensor& x_BSC,
                                                      const cpu::Places& rows, int64_t heads) {
  const auto x_BTC = enter(x_BSC, rows);
  return plain() ? ops::linear_to_heads(x_BTC, weight, bias, heads)
                 : ops::in_heads(product(x_BTC), heads);
}

torch::Tensor ColumnLinearImpl::gelu(const torch::Tensor& x_BSC, const cpu::Places& rows,
                                     bool tanh) {
  const auto x_BTC = enter(x_BSC, rows);
  if (!plain()) return at::gelu(product(x_BTC), tanh ? "tanh" : "none");
  return ops::linear_gelu(x_BTC, weight, bias, tanh, layers_.fused_cpu);
}

torch::Tensor ColumnLinearImpl::in_float32(const torch::Tensor& x_BSC, const cpu::Places& rows) {
  const auto x_BTC = enter(x_BSC, rows);
  if (!plain() || !bias.defined() || !fused::takes_products(x_BTC))
    return product(x_BTC).to(torch::kFloat32);
  return fused::linear_dropout_add(x_BTC, weight, bias, {}, 0.0);
}

RowLinearImpl::RowLinearImpl(int64_t in, int64_t out, bool with_bias, const LayerOptions& layers,
                             double dropout)
    : AdaptableLinearImpl(in, out, with_bias), layers_(layers), dropout_(dropout) {}

torch::Tensor RowLinearImpl::sum_of_products(const torch::Tensor& x_BTI,
                                             const cpu::Places& rows) const {
  return leave_layers(product_with_weight(x_BTI, {}), layers_.ranks, rows);
}

torch::Tensor RowLinearImpl::biased_sum(const torch::Tensor& x_BTI, const cpu::Places& rows) {
  if (!layers_.ranks) return AdaptableLinearImpl::forward(x_BTI);
  const auto sum = sum_of_products(x_BTI, rows);
  return bias.defined() ? sum + bias.to(sum.scalar_type()) : sum;
}

torch::Tensor RowLinearImpl::forward(const torch::Tensor& x_BTI, const cpu::Places& rows) {
  return ops::dropout(biased_sum(x_BTI, rows), active_dropout(), rows, layers_.fused_cpu);
}

ResidualStream RowLinearImpl::add_to(const torch::Tensor& residual_BSC, const torch::Tensor& x_BTI,
                                     const cpu::Places& rows) {
  const double p = active_dropout();
  if (!layers_.fused_cpu || !bias.defined() || !fused::takes(residual_BSC))
    return {residual_BSC, forward(x_BTI, rows)};
  if (layers_.ranks) {
    const auto sum = sum_of_products(x_BTI, rows).to(torch::kFloat32);
    return {fused::bias_dropout_add(sum, bias, residual_BSC, p, rows)};
  }
  if (!plain() || !fused::takes_products(x_BTI))
    return {fused::dropout_add(biased_sum(x_BTI, rows).to(torch::kFloat32), residual_BSC, p)};
  return {fused::linear_dropout_add(x_BTI, weight, bias, residual_BSC, p)};
}

VocabEmbeddingImpl::VocabEmbeddingImpl(int64_t vocab_size, int64_t width,
                                       const LayerOptions& layers)
    : AdaptableEmbeddingImpl(vocab_size, width), layers_(layers) {}

torch::Tensor VocabEmbeddingImpl::forward(const torch::Tensor& idx_BT, const cpu::Places& rows) {
  if (!layers_.ranks) return AdaptableEmbeddingImpl::forward(idx_BT);
  const IndexRange tokens = own_tokens(options.num_embeddings(), layers_.ranks);
  return leave_layers(lookup_own(idx_BT, weight, tokens), layers_.ranks, rows);
}

}  // namespace ddp::train
