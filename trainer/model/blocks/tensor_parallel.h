// Layers shared by several ranks: each holds some of the heads, of the inner features and of the
// vocabulary, and the ranks' products are summed at the end of the shared layers.
//
// After Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
// parallelism" (2019), whose f and g are enter_layers() and leave_layers(), and Korthikanti et al.,
// "Reducing activation recomputation in large transformer models" (2022), for rows divided by
// sequence. Shape suffixes: B batch, T sequence, S = T / ranks, C width, N = B T, V vocabulary.
#pragma once

#include <torch/custom_class.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/layout/tensor_layout.h"
#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train {

/// The collectives of the ranks that share layers. All ranks must make the same calls in the same
/// order, with contiguous tensors; results are bitwise identical on each. Backward passes call them
/// from autograd's threads.
class TensorRanks : public torch::CustomClassHolder {
 public:
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// Whether each rank holds S of a sequence's T rows between shared layers.
  virtual bool divides_sequence() const = 0;
  /// Whether they share the experts of layers, each for tokens of its own, and no other weight.
  virtual bool divides_experts() const { return false; }
  /// Sums `x` over all ranks in place.
  virtual void sum(const torch::Tensor& x) = 0;
  /// Takes the element-wise maximum of `x` over all ranks in place.
  virtual void largest(const torch::Tensor& x) = 0;
  /// Row `rank` of `table` [size, n] is filled in; the others' rows are on return.
  virtual void all_gather(const torch::Tensor& table) = 0;
  /// `own` [n] becomes the sum of all ranks' row `rank` of `table` [size, n].
  virtual void reduce_scatter(const torch::Tensor& table, const torch::Tensor& own) = 0;
  /// Sends the first sent[0] rows of `x` to rank 0, the next to rank 1 and so on. Returns the rows
  /// that the ranks have sent here, received[r] of rank r, in their order.
  virtual torch::Tensor all_to_all(const torch::Tensor& x, const std::vector<int64_t>& sent,
                                   const std::vector<int64_t>& received) = 0;
};

/// Null: the model is not divided.
using TensorRanksPtr = c10::intrusive_ptr<TensorRanks>;

/// The rows of a sequence of `length` that this rank holds between shared layers in a pass that is
/// not one of a cache. Throws for a training step whose rows do not divide.
cpu::Places rows_between_layers(const TensorRanksPtr& ranks, int64_t length, bool is_training);
/// The last dimension's numbers of those rows, of numbers for all rows.
torch::Tensor own_rows(const torch::Tensor& x_T, const cpu::Places& rows);

/// The input of shared layers: `x` itself or, of divided rows, those of all ranks, [B, S, C] ->
/// [B, T, C]; backward, the gradients of all ranks are summed. Without ranks `x`.
torch::Tensor enter_layers(const torch::Tensor& x, const TensorRanksPtr& ranks,
                           const cpu::Places& rows);
/// The output of shared layers: the sum of all ranks' products, of divided rows this rank's,
/// [B, T, C] -> [B, S, C]; backward, the gradient of each rank or of all rows. 16-bit products on a
/// CPU are summed in float32. Without ranks `product`.
torch::Tensor leave_layers(const torch::Tensor& product, const TensorRanksPtr& ranks,
                           const cpu::Places& rows);

/// TensorRanks::all_to_all(); backward, the gradients return to the ranks that the rows are of.
torch::Tensor exchange_rows(const torch::Tensor& x, const TensorRanksPtr& ranks,
                            const std::vector<int64_t>& sent, const std::vector<int64_t>& received);

/// The tokens whose rows of the embedding and the output layer this rank holds.
IndexRange own_tokens(int64_t vocab_size, const TensorRanksPtr& ranks);
/// Rows [tokens.begin, tokens.end) of a table that is divided by tokens: [B, T] -> [B, T, C], zeros
/// for the tokens of other ranks. Its sum over the ranks is the embedding.
torch::Tensor lookup_own(const torch::Tensor& idx_BT, const torch::Tensor& own_rows,
                         const IndexRange& tokens);

/// The elements of `tensor` in a box: a view.
torch::Tensor in_box(torch::Tensor tensor, const Box& box);

/// A rank's part of `whole`, in memory of its own.
torch::Tensor own_part(const torch::Tensor& whole, const TensorLayout& layout);

/// A vocabulary that is divided between ranks, in the loss.
struct VocabularyShare {
  TensorRanksPtr ranks;
  IndexRange tokens;  ///< This rank's.
};

/// Returns the negative log-likelihoods of `targets_n`, 0 where a target is negative, and turns
/// `logits`, those of this rank's tokens, [n, V'] in float32 or float64, into the gradient of their
/// sum. No rank sees other ranks' logits: 3 n numbers travel.
torch::Tensor divided_cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets_n,
                                     const VocabularyShare& share);
/// The most likely token of each row, of all ranks' logits; the first of several.
torch::Tensor divided_argmax(const torch::Tensor& logits, const VocabularyShare& share);
/// The logits of all tokens, [n, V], from those of this rank's, on each rank.
torch::Tensor gather_logits(const torch::Tensor& logits, int64_t vocab_size,
                            const VocabularyShare& share);

}  // namespace ddp::train
