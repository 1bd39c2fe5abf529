// A second causal model, linked with trainer's own main(): the example of docs/add-a-model.md. The
// next token depends on the last one alone.
#include <torch/torch.h>

#include "trainer/config/keys/key_rows.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/cost/tensor_cost.h"

namespace ddp::train {
namespace {

struct BigramConfig {
  int64_t width = 16;
};

int64_t width_of(const Config& config) { return config.models.of<BigramConfig>().width; }

class BigramArchitecture : public CausalArchitecture {
 public:
  std::string_view name() const override { return "bigram"; }

  void add_keys() const override {
    ModelSections::add<BigramConfig>();
    add_config_fields({{DDP_MODEL_KEY(bigram, BigramConfig, width), .range = kUpTo1e6,
                        .model = "bigram", .meaning = "Numbers per token."}});
  }

  std::vector<std::string> shape_keys() const override { return {"bigram_config.width"}; }
  std::string describe(const Config& config) const override {
    return "bigram of width " + std::to_string(width_of(config));
  }

  WeightsLayout layout(const Config& config, int64_t vocab_size) const override {
    const std::vector<int64_t> shape = {vocab_size, width_of(config)};
    return {{"table.weight", shape, WeightPlace::kBeforeBlocks, Split::kVocabulary, 1, vocab_size},
            {"head.weight", shape, WeightPlace::kAfterBlocks, Split::kVocabulary, 1, vocab_size}};
  }

  double flops_per_token(const Config& config, int64_t vocab_size) const override {
    return 6.0 * static_cast<double>(vocab_size * width_of(config));
  }
  std::string_view flops_formula() const override { return "6 for each weight of the head"; }
  std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                       const ComputePlace& place) const override {
    const auto tokens = static_cast<double>(config.trainer.batch_size * config.data.block_size);
    const auto width = static_cast<double>(width_of(config));
    const auto vocabulary = static_cast<double>(vocab_size);
    const double logits = logit_bytes({tokens, width, vocabulary, sizeof(float), {}});
    return rank_items(config, shapes_of(layout(config, vocab_size)), place,
                      {{"activations", static_cast<int64_t>(tokens * width) * 4},
                       {"logits", static_cast<int64_t>(logits)}});
  }
};

class Bigram : public CausalModel {
 public:
  Bigram(int64_t width, int64_t vocab_size, int64_t block_size, std::optional<uint64_t> seed)
      : CausalModel({vocab_size, block_size, {}, {}}) {
    table_ = register_module("table", torch::nn::Embedding(vocab_size, width));
    head_ = register_module(
        "head", torch::nn::Linear(torch::nn::LinearOptions(width, vocab_size).bias(false)));
    if (seed) draw(*seed);
  }

  const torch::Tensor& head_weight() const override { return head_->weight; }

 protected:
  torch::Tensor hidden_states(const torch::Tensor& idx_BT, const TokenContext&) override {
    return table_(idx_BT);
  }
  int64_t cached_layers() const override { return 0; }

 private:
  void draw(uint64_t seed) {
    const torch::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (auto& weight : parameters()) weight.normal_(0.0, 0.02, generator);
  }

  torch::nn::Embedding table_{nullptr};
  torch::nn::Linear head_{nullptr};
};

std::shared_ptr<CausalModel> make_bigram(const Config& config, int64_t vocab_size,
                                         std::optional<uint64_t> seed) {
  return std::make_shared<Bigram>(width_of(config), vocab_size, config.data.block_size, seed);
}

const bool kAdded = [] {
  add_causal_architecture(std::make_unique<BigramArchitecture>());
  add_causal_model("bigram", make_bigram);
  return true;
}();

}  // namespace
}  // namespace ddp::train
