// Causal attention of the heads that a rank has, without the output projection.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/model/blocks/block_pass.h"
#include "trainer/model/blocks/parallel_layers.h"

namespace ddp::train {

/// Sizes of the whole model.
struct AttentionShape {
  int64_t heads = 0;
  int64_t head_dim = 0;
  double dropout = 0.0;
  std::optional<double> scale{};  ///< Factor of scores; none: 1 / sqrt(head_dim).
  double softcap = 0.0;           ///< Scores s become softcap tanh(s / softcap); 0: they do not.
};

/// Position t sees positions <= t only, and those in the pass's cache, to which it adds its own;
/// packed documents see themselves. Dropout is that of one process: by this rank's part of the
/// masks of all heads. Shape suffixes: B batch, T sequence, H query heads of this rank, K its key
/// and value heads, which divide H, D head_dim.
class CausalAttentionImpl : public torch::nn::Module {
 public:
  CausalAttentionImpl(const AttentionShape& shape, const LayerOptions& options);

  /// Attention of heads that one layer projects, queries, keys and values in a row: [B, S, C] ->
  /// [B, T, H D].
  torch::Tensor forward(ColumnLinear& qkv, const torch::Tensor& x_BSC, const BlockPass& pass);
  /// Attention of heads that turn with their positions, [B, T, .., D] -> [B, T, H D].
  torch::Tensor rotary(const torch::Tensor& q_BTHD, const torch::Tensor& k_BTKD,
                       const torch::Tensor& v_BTKD, const BlockPass& pass) const;

 private:
  double active_dropout() const { return is_training() ? shape_.dropout : 0.0; }
  /// Whether the CPU's kernel takes a pass of T tokens.
  bool takes_kernel(int64_t length, const BlockPass& pass) const;
  torch::Tensor by_kernel(const torch::Tensor& qkv_BTE) const;
  torch::Tensor attend(const torch::Tensor& q_BHTD, torch::Tensor k_BKTD, torch::Tensor v_BKTD,
                       const BlockPass& pass) const;
  /// One query for each row, which sees every key that the mask leaves.
  torch::Tensor attend_to_cache(const torch::Tensor& q_BH1D, const torch::Tensor& k_BKTD,
                                const torch::Tensor& v_BKTD, const torch::Tensor& mask_B11T) const;
  /// By the formula: with soft-capped scores, or with this rank's part of dropout's masks.
  torch::Tensor attend_by_formula(const torch::Tensor& q_BHTD, const torch::Tensor& k_BHTD,
                                  const torch::Tensor& v_BHTD, const torch::Tensor& mask,
                                  double dropout) const;

  AttentionShape shape_;
  bool fused_cpu_;
  int64_t heads_;         // of this rank
  cpu::Places places_{};  // among those of all ranks
};
TORCH_MODULE(CausalAttention);

}  // namespace ddp::train
