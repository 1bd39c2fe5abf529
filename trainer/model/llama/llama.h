// Llama's decoder-only transformer: RMSNorm before each layer, rotary positions, grouped-query
// attention, SwiGLU, no biases; with biases of q, k and v it is Qwen2's, with norms of the query
// and key heads Qwen3's, with a window of attention Mistral's. What Gemma's blocks add is in
// llama_types.h.
//
// After Touvron et al., "Llama 2" (2023), Dubey et al., "The Llama 3 herd of models" (2024) and
// Yang et al., "Qwen3 technical report" (2025). Parameter names are those of transformers'
// LlamaForCausalLM.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/model/decoder_model.h"
#include "trainer/model/llama/llama_config.h"

namespace ddp::train {

class LlamaImpl : public DecoderModel {
 public:
  /// Weights drawn from `seed`; see DecoderModel::complete(). `ranks`: they share its layers, or
  /// the experts.
  LlamaImpl(const LlamaConfig& config, int64_t vocab_size, int64_t block_size,
            std::optional<uint64_t> seed, const TensorRanksPtr& ranks = {});

 protected:
  int64_t window(int64_t layer) const override { return window_of(shape_, layer); }
  void set_positions(BlockPass& pass, const torch::Tensor& idx_BT,
                     const TokenContext& context) override;

 private:
  LlamaShape shape_;
  torch::Tensor frequencies_;        // [R / 2], moved to the device of the tokens
  torch::Tensor local_frequencies_;  // the same, of layers with a window
};
TORCH_MODULE(Llama);

/// See MakeCausalModel.
std::shared_ptr<CausalModel> make_llama(const Config& config, int64_t vocab_size,
                                        std::optional<uint64_t> seed, const TensorRanksPtr& ranks);

/// Radians by which a position turns each pair of a head's numbers, float32 [rotary_width() / 2];
/// as in transformers, to the bit.
/// `is_local`: those of layers with a window and rope_local_base_freq.
torch::Tensor rotary_frequencies(const LlamaShape& shape, bool is_local = false);

}  // namespace ddp::train
