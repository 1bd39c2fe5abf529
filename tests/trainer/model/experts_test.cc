// Mixtures of experts: what llama_kinds.h and transformers do not show.
#include "trainer/model/blocks/experts.h"

#include <algorithm>

#include "tests/support/catch.h"

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/model/thread_ranks.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/llama/llama.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/lora.h"

namespace ddp::train {
namespace {

constexpr int64_t kExpertRows = 12;

Experts experts_of(int64_t experts, int64_t per_token) {
  Experts layer(ExpertsShape{.width = 8, .inner = 6, .experts = experts, .per_token = per_token},
                LayerOptions{});
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  for (auto& p : layer->parameters()) p.normal_();
  return layer;
}

torch::Tensor layer_product(const Experts& layer, int64_t expert, const char* name,
                            const torch::Tensor& x) {
  return at::linear(
      x, layer->named_parameters()["experts." + std::to_string(expert) + "." + name + ".weight"]);
}

/// Every expert for every token, of which the router's weights leave K.
torch::Tensor by_definition(const Experts& layer, const torch::Tensor& x_NC, int64_t experts,
                            int64_t per_token) {
  const auto probs_NE = at::linear(x_NC, layer->named_parameters()["gate.weight"]).softmax(-1);
  const auto least_N1 = std::get<0>(probs_NE.topk(per_token)).narrow(1, per_token - 1, 1);
  const auto weights_NE = probs_NE * probs_NE.ge(least_N1);
  auto sum = torch::zeros_like(x_NC);
  for (int64_t e = 0; e < experts; ++e) {
    const auto inner = at::silu(layer_product(layer, e, "gate_proj", x_NC)) *
                       layer_product(layer, e, "up_proj", x_NC);
    sum = sum + layer_product(layer, e, "down_proj", inner) * weights_NE.narrow(1, e, 1);
  }
  return sum;
}

torch::Tensor output_of_experts(Experts& layer, const torch::Tensor& x_NC,
                                RouterLoad* load = nullptr) {
  const auto x_BTC = x_NC.unsqueeze(0);
  BlockPass pass;
  pass.load = load;
  return layer->forward(Normed{x_BTC, x_BTC}, pass).branch[0];
}

Config config_of_kind(const std::string& kind) {
  return test::whole_config(test::config_of(test::llama_kind(kind)), 16);
}

}  // namespace

TEST_CASE("sorted tokens give the outputs and gradients of all experts, weighted by the router") {
  for (const int64_t per_token : {1, 2, 5}) {
    INFO(per_token);
    Experts layer = experts_of(5, per_token);
    auto x_NC = torch::randn({kExpertRows, 8}).requires_grad_();
    const auto gradient = torch::randn({kExpertRows, 8});
    std::vector<torch::Tensor> inputs = layer->parameters();
    inputs.push_back(x_NC);
    const auto ours = output_of_experts(layer, x_NC),
               expected = by_definition(layer, x_NC, 5, per_token);
    CHECK(torch::allclose(ours, expected, 1e-5, 1e-5));
    const auto own = torch::autograd::grad({ours}, inputs, {gradient});
    const auto theirs = torch::autograd::grad({expected}, inputs, {gradient});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      CHECK(torch::allclose(own[i], theirs[i], 1e-4, 1e-5));
  }
}

TEST_CASE("a trained expert without tokens has gradients of zeros, a frozen one is left out") {
  Experts layer = experts_of(5, 1);
  const auto x_NC = torch::randn({1, 8});
  output_of_experts(layer, x_NC).sum().backward();
  int64_t zeros = 0;
  for (const auto& p : layer->parameters()) {
    REQUIRE(p.grad().defined());
    zeros += p.grad().abs().max().item<double>() == 0.0;
  }
  CHECK(zeros == 3 * 4);  // all experts but one; the router has a gradient
  const torch::NoGradGuard no_grad;
  CHECK(output_of_experts(layer, x_NC).sizes() == x_NC.sizes());
}

TEST_CASE("ranks that share experts compute outputs and gradients of one, some without tokens") {
  constexpr int64_t kRanks = 2, kExperts = 4;
  Experts whole = experts_of(kExperts, 2);
  const auto x_RNC = torch::rand({kRanks, kExpertRows, 8}).requires_grad_();
  const auto gradient_RNC = torch::randn({kRanks, kExpertRows, 8});
  SECTION("each expert has some") {}
  SECTION("rank 1's have none") {
    const torch::NoGradGuard no_grad;
    auto gate_EC = whole->named_parameters()["gate.weight"];
    gate_EC.narrow(0, 0, 2).fill_(1.0);
    gate_EC.narrow(0, 2, 2).fill_(-1.0);
  }
  std::vector<torch::Tensor> outputs;
  for (int64_t r = 0; r < kRanks; ++r) outputs.push_back(output_of_experts(whole, x_RNC[r]));
  torch::stack(outputs).backward(gradient_RNC);
  test::ThreadRanks threads(kRanks, /*divides_sequence=*/false, /*divides_experts=*/true);
  threads.run([&](const TensorRanksPtr& ranks) {
    Experts shared(ExpertsShape{.width = 8, .inner = 6, .experts = kExperts, .per_token = 2},
                   LayerOptions{.experts = ranks});
    auto own = shared->named_parameters();
    CHECK(own.size() == 1 + 3 * kExperts / kRanks);
    for (auto& item : own) {
      const torch::NoGradGuard no_grad;
      item.value().copy_(whole->named_parameters()[item.key()]);
    }
    const int64_t r = ranks->rank();
    const auto x_NC = x_RNC[r].detach().clone().requires_grad_();
    const auto y_NC = output_of_experts(shared, x_NC);
    y_NC.backward(gradient_RNC[r]);
    CHECK(torch::allclose(y_NC, outputs[static_cast<std::size_t>(r)], 1e-5, 1e-6));
    CHECK(torch::allclose(x_NC.grad(), x_RNC.grad()[r], 1e-4, 1e-5));
    for (const auto& item : own) {
      REQUIRE(item.value().grad().defined());
      if (item.key() != "gate.weight")  // which each rank has for its own tokens
        CHECK(torch::allclose(item.value().grad(), whole->named_parameters()[item.key()].grad(),
                              1e-4, 1e-5));
    }
  });
}

TEST_CASE("the load-balancing loss is that of equations 4 to 6 over the rows of all layers") {
  RouterLoad load(4);
  std::vector<torch::Tensor> probs, chosen;
  for (int64_t layer = 0; layer < 3; ++layer) {
    probs.push_back(torch::randn({kExpertRows, 4}).softmax(-1));
    chosen.push_back(std::get<1>(probs.back().topk(2)));
    load.add(chosen.back().reshape({-1}).bincount({}, 4), probs.back());
  }
  const auto fractions = torch::one_hot(torch::cat(chosen), 4).to(torch::kFloat32).mean(0).sum(0);
  const auto expected = 4 * (fractions * torch::cat(probs).mean(0)).sum();
  CHECK(torch::allclose(load.balancing_loss(3 * kExpertRows), expected, 0, 1e-6));
}

TEST_CASE("sums of routers travel behind the hidden states, with their gradients") {
  const auto x_BSC = torch::randn({2, 3, 5}, torch::requires_grad());
  const auto probs = torch::randn({kExpertRows, 4}).softmax(-1).requires_grad_();
  const auto counts = torch::tensor({9, 2, 0, 1}, torch::kInt64);
  RouterLoad sender(4), receiver(4);
  sender.add(counts, probs);
  const auto message = sender.append_to(x_BSC);
  CHECK(message.size(1) == 3 + RouterLoad::rows(4, 5));
  const auto y_BSC = receiver.take_from(message);
  CHECK(torch::equal(y_BSC, x_BSC));
  receiver.add(counts, probs);
  sender.add(counts, probs);
  CHECK(torch::equal(receiver.balancing_loss(2 * kExpertRows),
                     sender.balancing_loss(2 * kExpertRows)));
  const auto own = torch::autograd::grad({receiver.balancing_loss(2 * kExpertRows)}, {probs})[0];
  CHECK(torch::equal(own,
                     torch::autograd::grad({sender.balancing_loss(2 * kExpertRows)}, {probs})[0]));
}

TEST_CASE("adapters and quantized bases leave routers alone, adapters experts, too") {
  const Config config = config_of_kind("mixtral");
  const auto layers = adaptable_layers(causal_architecture(config).layout(config, 65));
  CHECK(std::count(layers.begin(), layers.end(), "model.layers.0.block_sparse_moe.gate") == 0);
  CHECK(std::count(layers.begin(), layers.end(), "model.layers.1.block_sparse_moe.experts.3.w2") ==
        1);
  CHECK(adapted_layers({"w1", "gate"}, layers).empty());
  CHECK(adapted_layers({"*"}, layers).size() == 2 * 4);
}

TEST_CASE("FLOPs of a model of experts count those that a token goes through") {
  LlamaShape shape = test::llama_kind("mixtral");
  const double few = llama_flops_per_token(shape, 65, 16);
  shape.n_expert_per_token = 4;
  const double all = llama_flops_per_token(shape, 65, 16);
  const double expert = 3.0 * static_cast<double>(shape.n_embd * shape.intermediate);
  CHECK(all - few == 6.0 * 2.0 * static_cast<double>(shape.n_layer) * expert);
}

}  // namespace ddp::train
