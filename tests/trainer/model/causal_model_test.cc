// What every causal model promises, by GPT's example.
#include "trainer/model/causal_model.h"

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/model/causal_architecture.h"

namespace ddp::train {
namespace {

constexpr int64_t kSmallVocabulary = 65;

Config gpt_config(bool tied) {
  Config config;
  config.gpt = test::tiny_config(3, 4, 32);
  config.gpt.tie_weights = tied;
  config.data.block_size = 16;
  return config;
}

/// The part of `whole` that rank `rank` of `ranks` holds.
torch::Tensor part_of(const torch::Tensor& whole, const WeightPlace& place, int64_t rank,
                      int64_t ranks) {
  if (place.split == Split::kNone) return whole;
  const int64_t dim = place.split == Split::kRows ? 1 : 0;
  std::vector<torch::Tensor> parts;
  for (const auto& range : whole.chunk(place.ranges, dim))
    parts.push_back(range.chunk(ranks, dim)[static_cast<std::size_t>(rank)]);
  return torch::cat(parts, dim);
}

/// Weight and place by the end of the name in block 0.
struct Weights {
  std::shared_ptr<CausalModel> model;
  WeightsLayout layout;

  torch::Tensor part(const std::string& name, int64_t rank, int64_t ranks) const {
    const auto parameters = model->model_parameters();
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout[i].name == "transformer.h.0." + name)
        return part_of(parameters[i].tensor, layout[i], rank, ranks);
    }
    throw std::out_of_range(name);
  }
};

}  // namespace

TEST_CASE("the layout lists each parameter of the model, with its shape, in order") {
  for (const bool tied : {false, true}) {
    const Config config = gpt_config(tied);
    const auto layout = causal_architecture(config).layout(config, kSmallVocabulary);
    const auto parameters = make_causal_model(config, kSmallVocabulary, 1)->model_parameters();
    REQUIRE(layout.size() == parameters.size());
    int64_t total = 0;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      INFO(layout[i].name);
      CHECK(layout[i].name == parameters[i].name);
      CHECK(layout[i].shape == parameters[i].tensor.sizes().vec());
      total += parameters[i].tensor.numel();
    }
    CHECK(total == elements_of(layout));
  }
}

TEST_CASE("blocks of the layout follow each other, between what is before and after them") {
  const Config config = gpt_config(false);
  std::vector<int64_t> blocks;
  for (const WeightPlace& place : causal_architecture(config).layout(config, kSmallVocabulary)) {
    if (blocks.empty() || blocks.back() != place.block) blocks.push_back(place.block);
  }
  CHECK(blocks ==
        std::vector<int64_t>{WeightPlace::kBeforeBlocks, 0, 1, 2, WeightPlace::kAfterBlocks});
}

TEST_CASE("parts of a layer on several ranks add up to the layer") {
  const Config config = gpt_config(false);
  const Weights weights{make_causal_model(config, kSmallVocabulary, 1),
                        causal_architecture(config).layout(config, kSmallVocabulary)};
  const torch::NoGradGuard no_grad;
  const auto x_TC =
      torch::randn({8, 32}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{2}), torch::kFloat32);
  constexpr int64_t kHeadWidth = 8;
  const auto mlp = [&](int64_t rank, int64_t ranks) {
    const auto inner = torch::linear(x_TC, weights.part("mlp.c_fc.weight", rank, ranks),
                                     weights.part("mlp.c_fc.bias", rank, ranks));
    return torch::linear(at::gelu(inner), weights.part("mlp.c_proj.weight", rank, ranks));
  };
  const auto attention = [&](int64_t rank, int64_t ranks) {
    const auto qkv = torch::linear(x_TC, weights.part("attn.c_attn.weight", rank, ranks),
                                   weights.part("attn.c_attn.bias", rank, ranks))
                         .view({8, 3, -1, kHeadWidth})
                         .permute({1, 2, 0, 3})
                         .unsqueeze(1)
                         .unbind(0);
    const auto y = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
    return torch::linear(y.squeeze(0).transpose(0, 1).reshape({8, -1}),
                         weights.part("attn.c_proj.weight", rank, ranks));
  };
  for (const int64_t ranks : {2, 4}) {
    auto mlp_sum = torch::zeros_like(x_TC);
    auto attention_sum = torch::zeros_like(x_TC);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      mlp_sum += mlp(rank, ranks);
      attention_sum += attention(rank, ranks);
    }
    CHECK(torch::allclose(mlp_sum, mlp(0, 1), 0, 1e-6));
    CHECK(torch::allclose(attention_sum, attention(0, 1), 0, 1e-6));
  }
}

}  // namespace ddp::train
