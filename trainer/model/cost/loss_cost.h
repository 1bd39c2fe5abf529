// Estimates the memory of a causal model, its output layer and loss, and of 16-bit copies of
// matrices on a GPU. Does not use LibTorch.
#pragma once

#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/cost/training_cost.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

/// The loss of one micro-batch on a rank.
struct LossPart {
  LossSizes sizes;
  double padding = 0.0;      ///< Columns of logits beyond the vocabulary.
  double activations = 0.0;  ///< Kept for the backward pass, bytes: absent in an evaluation.
  double recomputed = 0.0;   ///< Activations of the block recomputed after the loss.
  bool frozen = false;       ///< The output layer, which has no gradient then.
};

/// Bytes of the loss at its peak, besides `part.activations`.
double loss_bytes(const Config& config, const ComputePlace& place, const LossPart& part);

/// Whether the operations of a GPU that have kernels for autocast to bfloat16 are computed by them
/// (trainer_config.fused_gpu_kernels).
bool by_gpu_kernels(const Config& config, const ComputePlace& place);

/// Columns of logits beyond `vocab_size`: pad_vocab_to_multiple_of.
double padding_of(const AutoNumber& multiple, double vocab_size, const ComputePlace& place);

/// Bytes of the matrices among `own`, which autocast and the kernels keep in 16 bits. Divided
/// weights are converted where they are used.
double weight_copy_bytes(const Config& config, const std::vector<ParameterShape>& own,
                         const ComputePlace& place);

/// Activations of a decoder-only transformer on a rank, bytes.
struct DecoderActivations {
  double kept = 0.0;       ///< By all blocks and micro-batches in flight, for the backward pass.
  double of_block = 0.0;   ///< By one block.
  double workspace = 0.0;  ///< Besides, while the last block is computed backward.
  bool checkpointed = false;
};

/// For a micro-batch; virtual tokens (prompt_tuning) have no logits.
inline double tokens_of_loss(const Config& config) {
  return static_cast<double>(config.trainer.batch_size * config.data.block_size);
}

/// rank_items() of such a model. `loss.finished` and `loss.divided` follow from the configuration;
/// `padding`: pad_vocab_to_multiple_of.
std::vector<MemoryItem> decoder_items(const Config& config, const ComputePlace& place,
                                      const WeightsLayout& layout,
                                      const DecoderActivations& activations, LossSizes loss,
                                      const AutoNumber& padding);

}  // namespace ddp::train
