// Decoder-only transformers: a token embedding, blocks, a final norm and an output layer. A
// model gives its blocks, its positions and the names of its modules; passes over stages of a
// pipeline, activation checkpointing, initial weights and tied heads are the same for all.
//
// Shape suffixes: B batch, T sequence, S the rows of it that this rank holds, C width.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/model/blocks/block_pass.h"
#include "trainer/model/blocks/model_unit.h"
#include "trainer/model/blocks/norm.h"
#include "trainer/model/blocks/parallel_layers.h"
#include "trainer/model/causal_model.h"

namespace ddp::train {

/// A block: attention and a feed-forward layer, each on the norm of the residual stream and added
/// to it.
class DecoderBlock : public ModelUnit {
 public:
  /// [B, S, C] -> [B, S, C].
  torch::Tensor forward(const torch::Tensor& x_BSC, const BlockPass& pass) {
    return with_weights(
        x_BSC, [&](const torch::Tensor& x) { return through(ResidualStream{x}, pass).sum(); });
  }
  /// The same without the last addition; the weights are in memory.
  virtual ResidualStream through(const ResidualStream& stream, const BlockPass& pass) = 0;
};

class DecoderModel : public CausalModel {
 public:
  const torch::Tensor& head_weight() const override { return head_->weight; }
  int64_t layers() const override { return design_.n_layer; }
  float embedding_scale() const override { return design_.embedding_scale; }
  bool waits_for_device() const override { return design_.n_expert > 0; }
  int64_t rows_handed_on(int64_t length) const override;
  void train_last_rows(int64_t count) override;
  torch::Tensor stage(const torch::Tensor& x_BSC, const LayerRange& layers,
                      const torch::Tensor& idx_BT, const TokenContext& context) override;

 protected:
  struct Design {
    int64_t n_layer = 0;
    int64_t n_embd = 0;
    int64_t n_expert = 0;          ///< In each block; 0: their feed-forward layers are dense.
    bool tied = false;             ///< The output layer is the token embedding.
    bool checkpointed = false;     ///< Blocks are computed again in the backward pass.
    bool drops = false;            ///< Whether there is any dropout.
    double norm_start = 1.0;       ///< Initial weights of norms.
    float embedding_scale = 1.0F;  ///< Factor of token embeddings.
    LayerOptions layers{};
    // The names of modules; the first one contains the others.
    const char* stack = "";
    const char* table = "";
    const char* blocks = "";
    const char* norm = "";
  };
  /// Registers the token embedding. A constructor then adds its other embeddings to stack() and
  /// calls complete().
  DecoderModel(Options options, const Design& design);
  /// Adds blocks, final norm and output layer. With a seed weights are drawn: N(0, 0.02), of layers
  /// that add to the residual stream N(0, 0.02 / sqrt(2 n_layer)), biases 0, norms `norm_start`.
  /// Without one they are undefined, for a caller that loads them all.
  void complete(const std::function<std::shared_ptr<DecoderBlock>()>& block, Norm norm,
                std::optional<uint64_t> seed);

  /// int64 [B, T] -> the blocks' input, [B, S, C].
  virtual torch::Tensor embed(const torch::Tensor& idx_BT, const TokenContext& context,
                              const BlockPass& pass);
  /// How many tokens each token may see in that layer, itself included; 0: all.
  virtual int64_t window(int64_t /*layer*/) const { return 0; }
  /// Sets what blocks of pass.window need to know of the tokens' positions.
  virtual void set_positions(BlockPass& /*pass*/, const torch::Tensor& /*idx_BT*/,
                             const TokenContext& /*context*/) {}

  torch::nn::Module& stack() { return *stack_; }
  const LayerOptions& layer_options() const { return design_.layers; }
  int64_t cached_layers() const override { return design_.n_layer; }
  void keep(const ModelPart& part) override;
  void draw_weights(uint64_t seed) override;
  torch::Tensor tied_table() const override;
  LowRankPair added_to_logits(const torch::Tensor& x) const override;

 private:
  /// What blocks with that window share.
  BlockPass new_pass(int64_t window, const torch::Tensor& idx_BT, const TokenContext& context,
                     RouterLoad* load);
  /// Whether what routers choose counts in the loss.
  bool balances() const { return design_.n_expert > 0 && router_aux_loss_coef() > 0.0; }
  ResidualStream through_block(const ResidualStream& stream, const BlockPass& pass);

  Design design_;
  std::shared_ptr<torch::nn::Module> stack_;
  VocabEmbedding table_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  Norm norm_{nullptr};
  AdaptableLinear head_{nullptr};
  torch::Tensor table_rows_, head_rows_;  // of train_last_rows(), the same of a tied head
};

}  // namespace ddp::train
