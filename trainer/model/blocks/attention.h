// Attention by torch, and by which of its kernels.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

/// at::scaled_dot_product_attention() of [B, H, T, D].
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value,
                        const std::optional<torch::Tensor>& mask = std::nullopt,
                        double dropout = 0.0, bool is_causal = false);

/// What decides by which kernel attention runs on a GPU.
struct AttentionCase {
  int64_t choice = 0;  ///< at::_fused_sdp_choice()
  torch::ScalarType type = torch::kFloat32;
  int64_t head_size = 0;
  bool has_mask = false;
};

/// Why flash attention, or cuDNN's, was not chosen, in one line; empty if it was.
std::string attention_note(const AttentionCase& attention);

/// That of the first attention with gradients that this process computed on a GPU.
std::string attention_note();

}  // namespace ddp::train
