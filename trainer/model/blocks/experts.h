// A sparse feed-forward layer: a router chooses for each token K of E gated layers, the experts,
// and adds up their outputs by its probabilities.
//
// After Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts
// layer" (2017) and Jiang et al., "Mixtral of experts" (2024). Tokens are sorted by expert: there
// is one product for each expert that has tokens. No two rows are added to one place in parallel,
// so results are bitwise reproducible on a GPU, too. The sizes of the products depend on the
// tokens: the host waits for the device once for each layer and pass, and CUDA graphs cannot
// record it. No token is dropped and no expert has a capacity.
//
// Ranks that share a layer divide every expert as a dense layer, and have the whole router. Ranks
// that share experts (Lepikhin et al., "GShard", 2020) each have some whole experts, for the tokens
// of all of them: rows travel to the ranks that own their experts, and the outputs back.
// Shape suffixes: B batch, T sequence, S the rows of it that this rank holds, C width, N = B T.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/model/blocks/block_pass.h"
#include "trainer/model/blocks/parallel_layers.h"

namespace ddp::train {

struct ExpertsShape {
  int64_t width = 0;
  int64_t inner = 0;  ///< One expert's.
  int64_t experts = 0;
  int64_t per_token = 0;
  bool normalized = false;      ///< The probabilities of a token's experts are scaled to sum to 1.
  bool rounds_weights = false;  ///< Under autocast they have the type of the router's logits.
  /// Names of an expert's layers: silu(gate) * up, then down.
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

/// What the routers of one pass have chosen, for the load-balancing loss of all layers together.
class RouterLoad {
 public:
  explicit RouterLoad(int64_t experts) : experts_(experts) {}

  /// A layer's choices: int64 [E], how often each expert was chosen, and probabilities [N, E].
  void add(const torch::Tensor& counts_E, const torch::Tensor& probs_NE);
  /// Fedus et al., "Switch transformers" (2021), equations 4 to 6, as transformers'
  /// load_balancing_loss_func: over all layers' `choices` at once, a token's of a layer being one.
  torch::Tensor balancing_loss(int64_t choices) const;

  /// Rows of width C that the sums take after the hidden states of a sequence, so that a message
  /// between stages and a checkpointed block carry them, and their gradients on the way back.
  static int64_t rows(int64_t experts, int64_t width) { return (2 * experts + width - 1) / width; }
  /// [B, S, C] -> [B, S + rows(), C].
  torch::Tensor append_to(const torch::Tensor& x_BSC) const;
  /// Undoes append_to(), of an earlier part of the pass, whose sums become this object's.
  torch::Tensor take_from(const torch::Tensor& x);

 private:
  int64_t experts_;
  torch::Tensor sums_2E_;  // counts, then sums of probabilities; undefined: none yet
};

class ExpertsImpl : public torch::nn::Module {
 public:
  ExpertsImpl(const ExpertsShape& shape, const LayerOptions& layers);
  /// Adds what the router chose to `pass.load`, if there is one.
  ResidualStream forward(const Normed& x, const BlockPass& pass);

 private:
  /// Rows sorted by expert, `sizes` of each that this rank has, through their experts.
  torch::Tensor products(const torch::Tensor& sorted, torch::IntArrayRef sizes);
  /// Rows sorted by expert, `counts_E` of each, through experts that the ranks share.
  torch::Tensor products_of_owners(const torch::Tensor& sorted, const torch::Tensor& counts_E);

  ExpertsShape shape_;
  TensorRanksPtr ranks_, owners_;
  IndexRange own_;  // experts
  torch::nn::Linear gate{nullptr};
  torch::nn::ModuleList experts;
};
TORCH_MODULE(Experts);

}  // namespace ddp::train
