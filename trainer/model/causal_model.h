// A causal language model as training, evaluation, generation and export see it. A model computes
// hidden states and names its output table; logits, loss and evaluation are the same for all.
//
// Shape suffixes: B batch, T sequence, N = B T, C width, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/key_value_cache.h"
#include "trainer/model/model_parameter.h"
#include "trainer/model/token_context.h"

namespace ddp::train {

class CausalModel : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocab_size = 0;
    int64_t block_size = 0;               ///< Maximum number of tokens in a sequence.
    AutoNumber loss_chunk_size;           ///< Rows of logits at a time in the loss; 0: all.
    AutoNumber pad_vocab_to_multiple_of;  ///< In the loss and evaluations; 0: no padding.
  };
  explicit CausalModel(const Options& options) : options_(options) {}

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
  /// All parameters, a tied matrix once.
  int64_t parameter_count() const;
  /// The output layer's matrix, [V, C]; a tied head's is the token embedding.
  virtual const torch::Tensor& head_weight() const = 0;

 protected:
  /// int64 [B, T] -> [B, T, C], what the output layer multiplies. With a cache the tokens are added
  /// to it.
  virtual torch::Tensor hidden_states(const torch::Tensor& idx_BT, const TokenContext& context) = 0;
  /// Layers of the cache; 0: the model looks at no earlier token.
  virtual int64_t cached_layers() const = 0;

 private:
  torch::Tensor logits(const torch::Tensor& x, const torch::Tensor& table_PC) const;
  int64_t rows_at_a_time(int64_t rows) const;

  Options options_;
};

/// The model that `config.model` names, in training mode on the CPU. Initial weights depend on
/// `seed` alone; without one they are undefined, for a caller that loads all of them.
std::shared_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size,
                                               std::optional<uint64_t> seed);

using MakeCausalModel = std::shared_ptr<CausalModel> (*)(const Config& config, int64_t vocab_size,
                                                         std::optional<uint64_t> seed);
/// Adds a model to those that make_causal_model() knows. Not thread-safe: call it before training.
void add_causal_model(const std::string& name, MakeCausalModel make);

}  // namespace ddp::train
