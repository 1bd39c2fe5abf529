// Causal language modelling: the next token as the target.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/model_part.h"
#include "trainer/task/causal_cost.h"
#include "trainer/task/causal_data.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

class CausalLm : public Task, private StageModel {
 public:
  CausalLm(const Config& config, const std::map<std::string, std::string>* metadata);

  const SampleSource& training() const override { return data_->training(); }
  const SampleSource* evaluation() const override;
  std::vector<NamedSource> evaluation_sets() const override;
  const SampleSource* test() const override { return test_.get(); }

  void divide(Mesh& mesh) override;
  WeightsLayout layout() const override { return cost().layout(); }
  void check_division(const Config& config) const override { cost().check_division(config); }
  std::vector<std::string> partial_gradients() const override {
    return model_->partial_gradients();
  }
  void complete_gradients() override { model_->sum_partial_gradients(); }
  TensorLayouts parameter_layouts() const override { return model_->parameter_layouts(); }
  std::vector<ParameterShape> whole_shapes() const override;
  StageModel* stage_model() override { return part_ ? this : nullptr; }
  void build_model(torch::Device device, std::optional<uint64_t> seed) override;
  torch::nn::Module& model() override { return *model_; }
  std::vector<Parameter> parameters() const override;
  std::vector<std::string> shape_keys() const override;
  void join(ProcessGroup& group, int64_t micro_batches) override;

  torch::Tensor loss(const Batch& batch) override;
  torch::Tensor smallest_loss() override;
  void end_step(ProcessGroup& /*group*/, const torch::Tensor& /*discard*/) override {
    last_router_losses_ = std::exchange(router_losses_, {});
  }
  /// aux_loss: the load-balancing loss of experts, as transformers calls it.
  Metrics step_metrics(ProcessGroup& group) override;
  /// Negative log-likelihood in nats, targets that were the most likely token, targets, their
  /// characters.
  BatchSums evaluate(const Batch& batch) override;
  int64_t sums() const override { return 4; }
  /// loss (nats per token), perplexity, bits_per_character, accuracy, tokens.
  Metrics metrics(const std::vector<double>& sums) const override;
  std::vector<std::string> metric_names() const override {
    return {"loss", "perplexity", "bits_per_character", "accuracy"};
  }
  /// trainer_config.sample_prompt and its continuation.
  std::optional<std::string> sample(uint64_t seed, const std::function<bool()>& go_on) override;

  int64_t units_per_sample() const override { return cost().units_per_sample(); }
  std::string_view unit() const override { return cost().unit(); }
  std::vector<ParameterPart> parameter_parts() const override { return cost().parameter_parts(); }
  double flops_per_unit() const override { return cost().flops_per_unit(); }
  std::string_view flops_formula() const override { return cost().flops_formula(); }
  std::vector<MemoryItem> memory_items(const Config& config,
                                       const ComputePlace& place) const override {
    return cost().memory_items(config, place);
  }

  std::map<std::string, std::string> metadata() const override;
  void check_resume(const std::map<std::string, std::string>& metadata,
                    const std::string& snapshot) const override;
  std::vector<std::string> describe() const override;
  std::vector<std::string> describe_data() const override { return data_->describe(); }
  LengthCounts lengths() const override { return data_->lengths(); }
  std::string next_command(const std::string& snapshot) const override {
    return "trainer generate --snapshot " + snapshot + " " + data_->prompt_options();
  }

 protected:
  const Config& config() const { return config_; }
  CausalModel& network() { return *model_; }

 private:
  std::vector<int64_t> activation_shape(const Batch& batch) const override;
  torch::TensorOptions activation_options() const override;
  torch::Tensor forward_stage(int own_stage, const torch::Tensor& x_BTC,
                              const Batch& batch) override;
  torch::Tensor shared_table() const override { return model_->shared_table(); }
  void set_links(StageLinks* links) override { model_->set_links(links); }

  torch::Tensor note_added(torch::Tensor loss);  ///< Notes what the model has added to it.
  CausalCost cost() const { return {config_, data_->tokenizer().size()}; }
  void add_to_base(std::optional<uint64_t> seed);
  void cut_model(std::optional<uint64_t> seed);
  static torch::Tensor countable_targets(const Batch& batch);
  std::string describe_shares() const;
  void open_eval_sets();
  /// Throws UserError if the weights' embeddings belong to other tokens.
  void compare_vocabularies();
  std::vector<int32_t> make_sample_prompt() const;

  const Config& config_;
  const CausalArchitecture& architecture_;
  std::unique_ptr<const CausalData> data_;
  std::shared_ptr<const SampleSource> test_;
  std::vector<std::shared_ptr<const SampleSource>> eval_sets_;  ///< As data_config.eval_sets.
  std::string chat_template_;                                   ///< See chat_template_of().
  std::string base_settings_;                                   ///< See base_settings_state().
  /// The metadata of the snapshot that is resumed; none: the pretrained model counts.
  std::optional<std::map<std::string, std::string>> resumed_;
  int64_t new_tokens_ = 0;  ///< Tokens that the model to start from has no rows for.
  std::vector<int32_t> sample_prompt_;
  TensorRanksPtr tensor_ranks_;    ///< Null: this process holds the whole model.
  TensorRanksPtr expert_ranks_;    ///< Null: it has all experts.
  std::optional<ModelPart> part_;  ///< This rank's part, if the model is cut into stages.
  std::shared_ptr<CausalModel> model_;
  std::vector<torch::Tensor> router_losses_, last_router_losses_;  ///< This and the last step's.
  std::string base_digest_;  ///< Digest of the pretrained model below adapters; else empty.
  torch::Tensor
      token_characters_;  ///< [V], float32, on the host: characters that begin in each token.
};

/// The tokenizer of a snapshot with this metadata. Throws RunError if there is none or it is
/// damaged.
std::unique_ptr<Tokenizer> tokenizer_of(const std::map<std::string, std::string>& metadata);
/// The metadata that tokenizer_of() reads.
std::map<std::string, std::string> tokenizer_metadata(const Tokenizer& tokenizer);

}  // namespace ddp::train
