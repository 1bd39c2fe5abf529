// A backward pass in two halves: the gradients of one in one piece.
#include "tests/support/catch.h"

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/weight_grad_store.h"
#include "trainer/optim/amp.h"

namespace ddp::train {
namespace {

constexpr int64_t kHalvesTokens = 61;
constexpr int64_t kHalvesLength = 16;
constexpr int64_t kHalvesBatches = 4;

using Amp = std::optional<torch::ScalarType>;

torch::Tensor loss_of_batch(CausalModel& model, int64_t index, const Amp& amp) {
  torch::manual_seed(100 + index);
  const Autocast autocast(torch::kCPU, amp);
  return model.loss(test::random_tokens(3, kHalvesLength, kHalvesTokens, index),
                    test::random_tokens(3, kHalvesLength, kHalvesTokens, 50 + index));
}

using Gradients = std::map<std::string, torch::Tensor>;

Gradients gradients_of(const CausalModel& model) {
  Gradients all;
  for (const auto& p : model.named_parameters()) {
    if (p.value().grad().defined()) all[p.key()] = p.value().grad().clone();
  }
  return all;
}

Gradients in_one_piece(CausalModel& model, const Amp& amp) {
  model.zero_grad();
  for (int64_t i = 0; i < kHalvesBatches; ++i) loss_of_batch(model, i, amp).backward();
  return gradients_of(model);
}

/// The second halves are two micro-batches late.
Gradients in_halves(CausalModel& model, const Amp& amp) {
  constexpr int64_t kLate = 2;
  model.zero_grad();
  WeightGradStore store;
  for (int64_t i = 0; i < kHalvesBatches + kLate; ++i) {
    if (i < kHalvesBatches) {
      store.begin(i);
      loss_of_batch(model, i, amp).backward();
    }
    if (i >= kLate) store.compute(i - kLate);
  }
  CHECK(store.empty());
  return gradients_of(model);
}

void check_halves(const Config& config, const Amp& amp = {},
                  torch::ScalarType type = torch::kFloat32) {
  const auto model = make_causal_model(config, kHalvesTokens, 5);
  model->to(type);
  model->train();
  const auto whole = in_one_piece(*model, amp);
  const auto halves = in_halves(*model, amp);
  REQUIRE(halves.size() == whole.size());
  for (const auto& [name, gradient] : whole) {
    INFO(name);
    CHECK(torch::equal(halves.at(name), gradient));
  }
}

// With a head of its own: the two parts of a tied table's gradient come from two stages.
Config gpt_of(bool fused, bool checkpointed = false) {
  Config config;
  config.data.block_size = kHalvesLength;
  config.gpt = test::tiny_config();
  config.gpt.fused_cpu_kernels = fused;
  config.gpt.tie_weights = false;
  config.gpt.activation_checkpointing = checkpointed;
  return config;
}

}  // namespace

TEST_CASE("a backward pass in two halves gives the gradients of a whole one, bit for bit") {
  for (const bool fused : {true, false}) {
    for (const bool checkpointed : {true, false}) {
      INFO("fused " << fused << ", checkpointed " << checkpointed);
      const Config config = gpt_of(fused, checkpointed);
      check_halves(config);
      check_halves(config, torch::kBFloat16);
      check_halves(config, torch::kHalf);
    }
  }
  check_halves(gpt_of(false), {}, torch::kFloat64);
  Config chunked = gpt_of(true);
  chunked.gpt.loss_chunk_size = {false, 7};
  check_halves(chunked);
}

TEST_CASE("a Llama's backward pass in two halves gives the gradients of a whole one") {
  for (auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    shape.tie_weights = false;
    const Config config = test::whole_config(test::config_of(shape), kHalvesLength);
    check_halves(config);
    check_halves(config, torch::kBFloat16);
    check_halves(config, {}, torch::kFloat64);
  }
}

TEST_CASE("the first half of a backward pass leaves the weights of linear layers alone") {
  for (const bool fused : {true, false}) {
    const auto model = make_causal_model(gpt_of(fused), kHalvesTokens, 5);
    model->train();
    WeightGradStore store;
    store.begin(0);
    loss_of_batch(*model, 0, {}).backward();
    for (const auto& p : model->named_parameters()) {
      INFO(p.key());
      const bool embedding =
          p.key().find(".wte.") != std::string::npos || p.key().find(".wpe.") != std::string::npos;
      CHECK(p.value().grad().defined() == (p.value().dim() == 1 || embedding));
    }
    store.compute(0);
    for (const auto& p : model->named_parameters()) CHECK(p.value().grad().defined());
  }
}

TEST_CASE("frozen layers have no second half, and an input without a gradient changes nothing") {
  const auto frozen = torch::randn({4, 3});
  const auto trained = torch::randn({5, 4}).requires_grad_();
  WeightGradStore store;
  store.begin(0);
  linear_layer(linear_layer(torch::randn({6, 3}), frozen), trained).sum().backward();
  CHECK_FALSE(trained.grad().defined());
  store.compute(0);
  CHECK(trained.grad().defined());
  store.begin(1);
  linear_layer(torch::randn({6, 3}).requires_grad_(), frozen).sum().backward();
  store.compute(1);
  CHECK_FALSE(frozen.grad().defined());
}

TEST_CASE("what a second half needs is freed when it has been computed") {
  const auto weight = torch::randn({5, 4}).requires_grad_();
  const auto x = torch::randn({6, 4});
  WeightGradStore store;
  const auto before = x.storage().use_count();
  store.begin(0);
  linear_layer(x, weight).sum().backward();
  CHECK(x.storage().use_count() == before + 1);
  store.compute(0);
  CHECK(x.storage().use_count() == before);
}

TEST_CASE("each second half is computed once, and by one store") {
  WeightGradStore store;
  CHECK_THROWS_WITH(store.compute(0), Catch::Contains("no weight gradients of micro-batch 0"));
  store.begin(0);
  CHECK_FALSE(store.empty());
  CHECK_THROWS_WITH(store.begin(0), Catch::Contains("micro-batch 0 began before"));
  store.compute(0);
  CHECK(store.empty());
  CHECK_THROWS_WITH(store.compute(0), Catch::Contains("no weight gradients of micro-batch 0"));
  CHECK_THROWS_WITH(WeightGradStore(), Catch::Contains("a second store"));
  CHECK(WeightGradStore::current() == &store);
}

}  // namespace ddp::train
