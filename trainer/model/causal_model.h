// A causal language model as training, evaluation, generation and export see it. A model computes
// hidden states and names its output table; logits, loss and evaluation are the same for all.
//
// Shape suffixes: B batch, T sequence, N = B T, C width, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/key_value_cache.h"
#include "trainer/model/model_parameter.h"
#include "trainer/model/tensor_parallel.h"
#include "trainer/model/token_context.h"
#include "trainer/model/weights_layout.h"

namespace ddp::train {

class CausalModel : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocab_size = 0;
    int64_t block_size = 0;               ///< Maximum number of tokens in a sequence.
    AutoNumber loss_chunk_size;           ///< Rows of logits at a time in the loss; 0: all.
    AutoNumber pad_vocab_to_multiple_of;  ///< In the loss and evaluations; 0: no padding.
    TensorRanksPtr ranks{};               ///< Null: this process holds the whole model.
    WeightsLayout layout{};               ///< Of the whole model; unused without ranks.
  };
  explicit CausalModel(Options options);

  // `positions_BT`: see TokenContext; undefined: each row is one document.
  /// int64 [B, T], T <= block_size -> logits [B, T, V].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& positions_BT = {});
  /// An empty cache for at most `capacity` tokens per row. `padding_B`: see KeyValueCache.
  KeyValueCache new_cache(int64_t capacity, torch::Tensor padding_B = {}) const;
  /// Logits of the last position alone, [B, V], of tokens that follow those in `cache`, to which
  /// they are added.
  torch::Tensor next_logits(const torch::Tensor& idx_BT, KeyValueCache& cache);
  /// Mean negative log-likelihood in nats over the targets that are not -1; a float32 scalar.
  torch::Tensor loss(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT,
                     const torch::Tensor& positions_BT = {});
  /// Sums over the targets that are not -1: negative log-likelihood in nats, targets that were the
  /// most likely token, targets. float32 [3].
  torch::Tensor evaluation_sums(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT,
                                const torch::Tensor& positions_BT = {});

  /// Of each target its negative log-likelihood in nats, 0 where it is -1; float32 [B, T], without
  /// gradients. The host waits for the device.
  torch::Tensor target_losses(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT);

  int64_t block_size() const { return options_.block_size; }
  int64_t vocab_size() const { return options_.vocab_size; }
  /// Columns of zeros that the loss and evaluations compute after the logits and drop again.
  int64_t logits_padding() const;
  /// Every distinct parameter once, in the order of registration.
  std::vector<ModelParameter> model_parameters() const;
  /// All parameters of the whole model, a tied matrix once.
  int64_t parameter_count() const;
  /// The output layer's matrix, [V, C], or the rows of this rank's tokens; a tied head's is the
  /// token embedding.
  virtual const torch::Tensor& head_weight() const = 0;

  /// The ranks that share this model's layers; null: it is whole.
  const TensorRanksPtr& tensor_ranks() const { return options_.ranks; }
  /// What this rank's parameters are of the whole model's; empty: all.
  ParameterCuts parameter_cuts() const;
  /// After the backward passes of a step: sums over the ranks what each has the gradients of its
  /// own heads or rows of.
  void sum_partial_gradients();
  /// Replaces whole weights by this rank's parts of them. Of a model with initial weights they are
  /// parts already; another one has whole, undefined weights until this is called.
  void keep_own_parts();

 protected:
  /// int64 [B, T] -> [B, T, C], what the output layer multiplies: the input of a shared layer where
  /// ranks share the model. With a cache the tokens are added to it.
  virtual torch::Tensor hidden_states(const torch::Tensor& idx_BT, const TokenContext& context) = 0;
  /// Layers of the cache; 0: the model looks at no earlier token.
  virtual int64_t cached_layers() const = 0;
  /// Lets `fill` write a weight's initial values, all of them, and keeps this rank's part.
  void draw(const std::string& name, torch::Tensor& weight,
            const std::function<void(torch::Tensor&)>& fill);
  /// The tokens whose rows of the embedding and the output layer this rank holds.
  CutRange own_tokens() const;

 private:
  /// This rank's part of a parameter.
  ParameterCut cut_of(const std::string& weight) const;
  const WeightPlace& place_of(const std::string& weight) const;
  VocabularyShare vocabulary_share() const { return {options_.ranks, own_tokens()}; }
  torch::Tensor all_logits(const torch::Tensor& x) const;
  std::pair<torch::Tensor, torch::Tensor> loss_and_best(const torch::Tensor& logits_nV,
                                                        const torch::Tensor& targets_n) const;
  torch::Tensor logits(const torch::Tensor& x, const torch::Tensor& table_PC) const;
  int64_t automatic_rows(int64_t bytes_per_logit) const;
  int64_t rows_at_a_time(int64_t rows, int64_t bytes_per_logit) const;
  int64_t rows_in_evaluation(int64_t rows) const;

  Options options_;
};

/// The model that `config.model` names, in training mode on the CPU. Initial weights depend on
/// `seed` alone; without one they are undefined, for a caller that loads all of them. `ranks`: they
/// share its layers.
std::shared_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size,
                                               std::optional<uint64_t> seed,
                                               const TensorRanksPtr& ranks = {});

using MakeCausalModel = std::shared_ptr<CausalModel> (*)(const Config& config, int64_t vocab_size,
                                                         std::optional<uint64_t> seed);
/// Adds a model to those that make_causal_model() knows. Not thread-safe: call it before training.
void add_causal_model(const std::string& name, MakeCausalModel make);

}  // namespace ddp::train
