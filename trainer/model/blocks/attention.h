// Attention by torch's kernels, and a note on which kernel computes it on a GPU.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

/// at::scaled_dot_product_attention() on tensors of shape [B, H, T, D].
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value,
                        const std::optional<torch::Tensor>& mask = std::nullopt,
                        double dropout = 0.0, bool is_causal = false,
                        std::optional<double> scale = std::nullopt);

/// The inputs that decide which kernel computes attention on a GPU.
struct AttentionCase {
  int64_t choice = 0;  ///< at::_fused_sdp_choice()
  torch::ScalarType type = torch::kFloat32;
  int64_t head_size = 0;
  bool has_mask = false;
};

/// Returns one line on why neither flash nor cuDNN's attention was chosen; empty if one was.
std::string attention_note(const AttentionCase& attention);

/// Returns the note for the first attention with gradients that this process computed on a GPU.
std::string attention_note();

}  // namespace ddp::train
