// A causal language model as training, evaluation, generation and export see it. A model computes
// hidden states and provides its output table; logits, loss and evaluation are the same for all.
//
// Shape suffixes: B batch, T sequence, N = B T, C width, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/blocks/chunked_loss.h"
#include "trainer/model/blocks/key_value_cache.h"
#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/model/blocks/token_context.h"
#include "trainer/model/load/weights_layout.h"
#include "trainer/model/model_parameter.h"
#include "trainer/model/model_part.h"
#include "trainer/model/stage_links.h"

namespace ddp::train {

class CausalModel : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocab_size = 0;
    int64_t block_size = 0;               ///< Maximum tokens in a sequence, virtual ones included.
    AutoNumber loss_chunk_size;           ///< Rows of logits at a time in the loss; 0: all.
    AutoNumber pad_vocab_to_multiple_of;  ///< In the loss and evaluations; 0: no padding.
    TensorRanksPtr ranks{};               ///< Null: this process holds the whole model.
    WeightsLayout layout{};               ///< The whole model's.
    double logit_softcap = 0.0;           ///< Logits x are cap tanh(x / cap); 0: they are not.
    double router_aux_loss_coef = 0.0;    ///< Factor of router_loss() in a loss.
    TensorRanksPtr experts{};             ///< Those that share experts; null: this rank has all.
  };
  explicit CausalModel(Options options);

  // `positions_BT`: see TokenContext; undefined: each row is one document.
  /// int64 [B, T], T <= block_size -> logits [B, T, V].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& positions_BT = {});
  /// An empty cache for at most `capacity` tokens per row, after virtual ones. `padding_B`: see
  /// KeyValueCache.
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

  /// For loss() alone: the share of a target's probability that all tokens get alike.
  void set_label_smoothing(double share) { label_smoothing_ = share; }

  /// The negative log-likelihood of each target in nats, 0 where the target is -1; float32 [B, T],
  /// without gradients. The host waits for the device.
  torch::Tensor target_losses(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT);

  /// Without virtual tokens.
  int64_t block_size() const { return options_.block_size - prompt_tokens(); }
  int64_t vocab_size() const { return options_.vocab_size; }
  /// Columns of zeros that the loss and evaluations compute after the logits and drop again.
  int64_t logits_padding() const;
  /// Every distinct parameter once, in the order of registration; of a part those that it trains.
  std::vector<ModelParameter> model_parameters() const;
  /// The parameters of the whole model.
  std::vector<ParameterShape> whole_shapes() const;
  /// All parameters of the whole model, a tied matrix once.
  int64_t parameter_count() const;
  /// The output layer's matrix, [V, C], or the rows of this rank's tokens; a tied head's is the
  /// token embedding.
  virtual const torch::Tensor& head_weight() const = 0;
  /// [..., C] -> [..., V], of this rank's tokens. `table_PC`: padded_table() of head_weight().
  torch::Tensor logits(const torch::Tensor& x, const torch::Tensor& table_PC) const;

  /// The ranks that share this model's layers; null: it is whole.
  const TensorRanksPtr& tensor_ranks() const { return options_.ranks; }
  /// What the parameters that this rank trains are of the whole model's; empty: all of it.
  TensorLayouts parameter_layouts() const;
  /// Parameters of which each of the ranks has the gradients of its own heads or rows.
  std::vector<std::string> partial_gradients() const;
  /// After the backward passes of a step: sums them over the ranks.
  void sum_partial_gradients();
  /// Sets this rank's part of `weight`, which it holds as `name`, from those of the whole weight.
  void set_weight(const std::string& name, torch::Tensor& weight, const torch::Tensor& values);
  /// Replaces whole weights by this rank's parts of them. In a model with initial weights they are
  /// parts already; another one has whole, undefined weights until this is called.
  void keep_own_parts();
  /// Freezes all parameters and adds one that is trained: embeddings of virtual tokens, [P, C],
  /// that come before the tokens of each sequence and have no logits.
  void add_prompt(const torch::Tensor& embeddings_PC);
  /// Trains the last `count` rows of the token embedding, and of an output layer of its own, in
  /// place of the tables' rows, which become zeros. For a model that takes adapters to override.
  virtual void train_last_rows(int64_t /*count*/) {}
  int64_t prompt_tokens() const { return prompt_PC_.defined() ? prompt_PC_.size(0) : 0; }
  /// Whether the host reads from the device within a pass, which no CUDA graph can record.
  virtual bool waits_for_device() const { return false; }
  // Ranks that each have some of the layers.
  /// The layers that the model can be cut between; 0: it cannot be cut.
  virtual int64_t layers() const { return 0; }
  /// Keeps what `part` has, under the names that it had. With a seed its weights are drawn: those
  /// that they would be in the whole model. To be called at most once, before anything is computed.
  void cut(ModelPart part, std::optional<uint64_t> seed);
  /// None: this is the whole model.
  const std::optional<ModelPart>& part() const { return part_; }
  /// Width of the residual stream, C.
  int64_t width() const { return part_ ? width_ : head_weight().size(1); }
  /// Factor of token embeddings on their way into the first block.
  virtual float embedding_scale() const { return 1.0F; }
  /// How many rows for each sequence of `length` this rank hands on to the next stage in a pass
  /// without a cache.
  virtual int64_t rows_handed_on(int64_t length) const;
  bool has_head() const { return !part_ || part_->has_last(); }
  /// For next_logits() and evaluation_sums() of a part, which all its ranks call alike, without
  /// gradients. `links` outlive the calls. The sums are 0 but on the last stage's rank.
  void set_links(StageLinks* links) { links_ = links; }
  /// The table of a tied head, where the first stage, which trains it, is on another rank than the
  /// last one, which has a copy: on both of them. Elsewhere undefined.
  torch::Tensor shared_table() const;
  /// [B, T, C] through the layers of one stage, before the first of which the tokens are embedded
  /// and after the last of which the final norm is applied. `x_BTC` is not used by the first stage.
  virtual torch::Tensor stage(const torch::Tensor& x_BTC, const LayerRange& layers,
                              const torch::Tensor& idx_BT, const TokenContext& context);
  /// loss() from what the last stage returns.
  torch::Tensor loss_of(const torch::Tensor& x_BTC, const torch::Tensor& targets_BT);
  /// `loss` of the last pass and the load-balancing loss of its routers; `loss` if it has none.
  torch::Tensor with_router_loss(const torch::Tensor& loss);
  /// The load-balancing loss that was added last, without a graph; undefined: none.
  const torch::Tensor& router_loss() const { return router_loss_; }

 protected:
  /// int64 [B, T] -> [B, T, C], what the output layer multiplies: the input of a shared layer where
  /// ranks share the model. With a cache the tokens are added to it. All layers as one stage(); for
  /// a model that cannot be cut to override.
  virtual torch::Tensor hidden_states(const torch::Tensor& idx_BT, const TokenContext& context);
  /// Layers of the cache; 0: the model looks at no earlier token.
  virtual int64_t cached_layers() const = 0;
  /// Lets `fill` write a weight's initial values, all of them, and keeps this rank's part.
  void draw(const std::string& name, torch::Tensor& weight,
            const std::function<void(torch::Tensor&)>& fill);
  const WeightPlace& place_of(const std::string& weight) const;
  /// [B, S, C] -> [B, T, C], what the output layer multiplies: ranks divide it as a ColumnLinear.
  torch::Tensor head_input(const torch::Tensor& x_BSC, const cpu::Places& rows) const {
    return enter_layers(x_BSC, options_.ranks, rows);
  }

  /// `x_BTC`, the embeddings of a pass's tokens, with those of virtual tokens in their places.
  torch::Tensor with_prompt(const torch::Tensor& x_BTC, const TokenContext& context) const;

  double router_aux_loss_coef() const { return options_.router_aux_loss_coef; }
  /// The load-balancing loss of the pass whose loss follows.
  void set_router_loss(torch::Tensor loss) { router_loss_ = std::move(loss); }
  /// Removes the modules that `part` lacks. The last stage keeps a tied table.
  virtual void keep(const ModelPart& /*part*/) {}
  /// Gives every weight its initial value by draw_each().
  virtual void draw_weights(uint64_t /*seed*/) {}
  /// Calls `value` for each parameter of the whole model in the order of registration, for those
  /// that a part lacks with a tensor of their shape.
  void draw_each(const std::function<void(const std::string& name, torch::Tensor& tensor)>& value);
  /// The table of a tied head, where this rank has it.
  virtual torch::Tensor tied_table() const { return {}; }
  /// What the output layer's adapter, or rows that are trained, add to the logits of `x`.
  virtual LowRankPair added_to_logits(const torch::Tensor& /*x*/) const { return {}; }

 private:
  /// This rank's part of a parameter.
  TensorLayout layout_of(const std::string& weight) const;
  IndexRange own_tokens() const { return ddp::train::own_tokens(vocab_size(), options_.ranks); }
  VocabularyShare vocabulary_share() const { return {options_.ranks, own_tokens()}; }
  torch::Tensor all_logits(const torch::Tensor& x) const;
  std::pair<torch::Tensor, torch::Tensor> loss_and_best(const torch::Tensor& logits_nV,
                                                        const torch::Tensor& targets_n) const;
  /// final_states() of the tokens, after the virtual ones if their text starts here.
  torch::Tensor token_states(const torch::Tensor& idx_BT, const TokenContext& context);
  /// hidden_states() on the last stage's rank; undefined on others.
  torch::Tensor final_states(const torch::Tensor& idx_BT, const TokenContext& context);
  torch::Tensor through_stages(const torch::Tensor& idx_BT, const TokenContext& context);
  bool is_borrowed(const torch::Tensor& parameter) const;
  torch::Tensor likelihood_loss(const torch::Tensor& x_BTC, const torch::Tensor& targets_BT) const;
  torch::Tensor capped(const torch::Tensor& logits) const;
  int64_t automatic_rows(int64_t bytes_per_logit) const;
  int64_t rows_at_a_time(int64_t rows, int64_t bytes_per_logit) const;
  int64_t rows_in_evaluation(int64_t rows) const;

  Options options_;
  std::unordered_map<std::string_view, const WeightPlace*> places_;  // in options_.layout
  torch::Tensor prompt_PC_;  // undefined: there are no virtual tokens
  std::optional<ModelPart> part_;
  std::vector<ParameterShape> whole_;  // the model's parameters, where this rank lacks some
  int64_t width_ = 0;                  // of a part
  StageLinks* links_ = nullptr;
  double label_smoothing_ = 0.0;
  torch::Tensor router_loss_;
};

/// The model that `config.model` names, in training mode on the CPU. Initial weights depend on
/// `seed` alone; without one they are undefined, for a caller that loads all of them. `ranks`: they
/// share its layers, or the experts.
std::shared_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size,
                                               std::optional<uint64_t> seed,
                                               const TensorRanksPtr& ranks = {});

using MakeCausalModel = std::shared_ptr<CausalModel> (*)(const Config& config, int64_t vocab_size,
                                                         std::optional<uint64_t> seed);
/// Adds a model to those that make_causal_model() knows. Not thread-safe: call it before training.
void add_causal_model(const std::string& name, MakeCausalModel make);

}  // namespace ddp::train
