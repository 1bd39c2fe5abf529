#include "trainer/model/llama/llama.h"

#include <cmath>
#include <set>

#include "tests/support/catch.h"

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/optim/amp.h"
#include "trainer/task/generate/generate.h"

namespace ddp::train {
namespace {

using test::random_tokens;

constexpr int64_t kVocabularyOfLlama = 65;
constexpr int64_t kWindow = 24;
constexpr int64_t kLongWindow = 200;

Llama tiny_llama(const LlamaShape& shape, uint64_t seed = 5, int64_t window = kWindow) {
  return Llama(test::config_of(shape), kVocabularyOfLlama, window, seed);
}

/// Large weights within the blocks: greedy texts that do not repeat one token.
Llama lively_llama(const LlamaShape& shape) {
  Llama model = tiny_llama(shape);
  const torch::NoGradGuard no_grad;
  for (const auto& p : model->model_parameters()) {
    if (p.role == ParameterRole::kHidden) p.tensor.mul_(12.0);
  }
  return model;
}

/// Without any cache: the whole context at each step.
std::vector<int32_t> greedy_by_recomputation(Llama& model, std::vector<int32_t> tokens,
                                             int64_t count) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::vector<int32_t> result;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = std::min<int64_t>(static_cast<int64_t>(tokens.size()), kWindow);
    const auto context =
        torch::tensor(std::vector<int64_t>(tokens.end() - length, tokens.end()), torch::kInt64);
    const auto logits = model->forward(context.unsqueeze(0));
    tokens.push_back(static_cast<int32_t>(logits[0][-1].argmax().item<int64_t>()));
    result.push_back(tokens.back());
  }
  return result;
}

std::vector<std::vector<int32_t>> continued(Llama& model,
                                            const std::vector<BatchGenerator::Row>& rows,
                                            int64_t count) {
  SamplingOptions options;
  options.greedy = true;
  options.max_new_tokens = count;
  BatchGenerator generator(*model, rows, options);
  std::vector<std::vector<int32_t>> result(rows.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto tokens = generator.next();
    for (std::size_t row = 0; row < rows.size(); ++row) result[row].push_back(tokens[row]);
  }
  return result;
}

/// Loss, then the gradients of every parameter.
std::vector<torch::Tensor> loss_and_gradients(const LlamaConfig& config,
                                              std::optional<torch::ScalarType> amp) {
  Llama model(config, kVocabularyOfLlama, kWindow, 5);
  model->train();
  torch::Tensor loss;
  {
    const Autocast autocast(torch::kCPU, amp);
    loss = model->loss(random_tokens(3, kWindow, kVocabularyOfLlama, 1),
                       random_tokens(3, kWindow, kVocabularyOfLlama, 2));
  }
  loss.backward();
  std::vector<torch::Tensor> result = {loss};
  for (const auto& p : model->parameters()) result.push_back(p.grad());
  return result;
}

}  // namespace

TEST_CASE("the layout of each Llama lists its parameters, with shapes and roles, in order") {
  for (const auto& [name, shape] : test::llama_kinds()) {
    const auto shapes = shapes_of(llama_layout(shape, kVocabularyOfLlama));
    const Llama model = tiny_llama(shape);
    const auto parameters = model->model_parameters();
    REQUIRE(shapes.size() == parameters.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      INFO(name << " " << shapes[i].name);
      CHECK(shapes[i].name == parameters[i].name);
      CHECK(shapes[i].sizes == parameters[i].tensor.sizes().vec());
      CHECK(shapes[i].role == parameters[i].role);
    }
    CHECK(count_of(shapes) == model->parameter_count());
  }
}

TEST_CASE("a changed token leaves all logits of a Llama before it unchanged") {
  for (const auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    Llama model = tiny_llama(shape, 7);
    model->eval();
    const torch::NoGradGuard no_grad;
    const auto tokens = random_tokens(2, kWindow, kVocabularyOfLlama, 3);
    const auto before = model->forward(tokens);
    auto changed = tokens.clone();
    constexpr int64_t kAt = kWindow / 2;
    changed.select(1, kAt).copy_((changed.select(1, kAt) + 1) % kVocabularyOfLlama);
    const auto after = model->forward(changed);
    CHECK(torch::equal(after.slice(1, 0, kAt), before.slice(1, 0, kAt)));
    CHECK_FALSE(torch::equal(after.slice(1, kAt, kAt + 1), before.slice(1, kAt, kAt + 1)));
  }
}

TEST_CASE("a Llama's cache gives the tokens of full recomputation, beyond the block too") {
  const std::vector<int32_t> longer(kWindow + 5, 7);
  for (const auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    Llama model = lively_llama(shape);
    for (const auto& prompt : {std::vector<int32_t>{1}, std::vector<int32_t>{9, 8, 7}, longer}) {
      const auto expected = greedy_by_recomputation(model, prompt, 40);
      CHECK(std::set<int32_t>(expected.begin(), expected.end()).size() > 3);
      CHECK(continued(model, {{prompt}}, 40)[0] == expected);
    }
  }
}

TEST_CASE("a Llama's cache holds the key and value heads alone") {
  const LlamaShape shape = test::llama_kinds()[1].shape;
  Llama model = tiny_llama(shape);
  model->eval();
  const torch::NoGradGuard no_grad;
  auto cache = model->new_cache(kWindow);
  model->next_logits(random_tokens(3, 5, kVocabularyOfLlama, 1), cache);
  CHECK(cache.layers[0].keys_BHTD.sizes().vec() ==
        std::vector<int64_t>{3, shape.n_kv_head, kWindow, shape.head_dim});
}

TEST_CASE("a Llama's loss and gradients in float32, by the kernels, are those in float64") {
  const auto results = [](const LlamaShape& shape, int64_t window, const torch::Tensor& positions,
                          torch::ScalarType type) {
    Llama model = tiny_llama(shape, 7, window);
    model->to(type);
    const auto loss = model->loss(random_tokens(2, window, kVocabularyOfLlama, 1),
                                  random_tokens(2, window, kVocabularyOfLlama, 2), positions);
    loss.backward();
    std::vector<torch::Tensor> all = {loss.detach().to(torch::kFloat64)};
    for (const auto& p : model->parameters()) all.push_back(p.grad().to(torch::kFloat64));
    return all;
  };
  for (const auto& [name, shape] : test::llama_kinds()) {
    for (const int64_t window : {24, 300}) {  // by the attention of the kernels, by torch's
      for (const bool packed : {false, true}) {
        INFO(name << ", window " << window << ", packed " << packed);
        const auto positions =
            packed ? torch::arange(window).remainder(10).repeat({2, 1}) : torch::Tensor();
        const auto ours = results(shape, window, positions, torch::kFloat32);
        const auto wide = results(shape, window, positions, torch::kFloat64);
        for (std::size_t i = 0; i < ours.size(); ++i) {
          const double largest = wide[i].abs().max().item<double>();
          CHECK((ours[i] - wide[i]).abs().max().item<double>() <= 2e-6 * std::max(0.05, largest));
        }
      }
    }
  }
}

// As on a GPU, where the least room is 256.
TEST_CASE("a token's place by a cache's length on the device gives the logits of the host's") {
  const auto check = [](CausalModel& model, int64_t vocabulary, const torch::Tensor& padding) {
    model.eval();
    const torch::NoGradGuard no_grad;
    auto by_host = model.new_cache(300, padding), by_device = model.new_cache(300, padding);
    by_device.length_1 = torch::zeros({1}, torch::kInt64);
    const auto read = [&](int64_t count, uint64_t seed) {
      const auto tokens = random_tokens(2, count, vocabulary, seed);
      CHECK(torch::allclose(model.next_logits(tokens, by_device),
                            model.next_logits(tokens, by_host), 1e-4, 1e-5));
      CHECK(by_device.length_1.item<int64_t>() == by_host.length);
    };
    read(padding.defined() ? 2 : 1, 9);  // all of the padding in one pass
    for (int64_t i = 0; i < 3; ++i) read(1, 10 + i);
    CHECK(by_device.mask(1, torch::kCPU).size(3) == 256);
    read(240, 1);
    for (int64_t i = 0; i < 15; ++i) read(1, 20 + i);      // beyond 256
    CHECK(by_device.mask(1, torch::kCPU).size(3) == 304);  // a multiple of 8
    for (auto* cache : {&by_host, &by_device}) cache->shorten(100);
    read(2, 2);
    for (int64_t i = 0; i < 3; ++i) read(1, 40 + i);
  };
  for (const auto& padding : {torch::Tensor(), torch::tensor({0, 2}, torch::kInt64)}) {
    for (const auto& [name, shape] : test::llama_kinds()) {
      INFO(name);
      check(*tiny_llama(shape, 7, 300), kVocabularyOfLlama, padding);
    }
    check(*GPT(test::tiny_config(2, 2, 32), 65, 300, 5), 65, padding);
  }
}

TEST_CASE("a cache makes room by doubling, and what it holds gives the logits of the whole text") {
  const auto check = [](CausalModel& model, int64_t vocabulary) {
    model.eval();
    const torch::NoGradGuard no_grad;
    auto cache = model.new_cache(kLongWindow);
    torch::Tensor text = torch::zeros({2, 0}, torch::kInt64);
    const auto read = [&](int64_t count, uint64_t seed) {
      const auto tokens = random_tokens(2, count, vocabulary, seed);
      text = torch::cat({text.narrow(1, 0, cache.length), tokens}, 1);
      const auto whole = model.forward(text).select(1, -1);
      CHECK(torch::allclose(model.next_logits(tokens, cache), whole, 1e-4, 1e-5));
      return cache.layers[0].values_BHTD.size(2);
    };
    CHECK(read(5, 1) == 64);
    CHECK(read(59, 2) == 64);
    CHECK(read(1, 3) == 128);
    cache.shorten(10);  // a shorter text after a longer one
    CHECK(read(20, 4) == 128);
    CHECK(read(110, 5) == kLongWindow);
    CHECK(read(kLongWindow - 140, 6) == kLongWindow);
  };
  for (const auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    check(*tiny_llama(shape, 7, kLongWindow), kVocabularyOfLlama);
  }
  check(*GPT(test::tiny_config(2, 2, 32), 65, kLongWindow, 5), 65);
}

TEST_CASE("a Llama's row does not depend on longer rows beside it") {
  for (const auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    Llama model = lively_llama(shape);
    const std::vector<BatchGenerator::Row> rows = {{{1, 2, 3}}, {{4}}, {{5, 6, 7, 8, 9, 10, 11}}};
    const auto together = continued(model, rows, 30);
    for (std::size_t row = 0; row < rows.size(); ++row)
      CHECK(continued(model, {rows[row]}, 30)[0] == together[row]);
  }
}

TEST_CASE("grouped heads compute what repeated key and value heads compute") {
  LlamaShape grouped = test::llama_kinds()[4].shape;  // with biases
  LlamaShape full = grouped;
  full.n_kv_head = full.n_head;
  Llama few = tiny_llama(grouped, 1);
  Llama many = tiny_llama(full, 2);
  const torch::NoGradGuard no_grad;
  const auto theirs = few->named_parameters();
  for (auto& item : many->named_parameters()) {
    const torch::Tensor& from = theirs[item.key()];
    const bool repeated = from.size(0) != item.value().size(0);
    auto sizes = from.sizes().vec();
    sizes.insert(sizes.begin(), grouped.n_kv_head);
    sizes[1] = grouped.head_dim;
    item.value().copy_(
        repeated ? from.view(sizes).repeat_interleave(2, 0).reshape(item.value().sizes()) : from);
  }
  const auto tokens = random_tokens(2, kWindow, kVocabularyOfLlama, 3);
  CHECK(torch::allclose(few->forward(tokens), many->forward(tokens), 0, 1e-6));
}

TEST_CASE("checkpointed blocks of a Llama give the same bits") {
  for (const auto& [name, shape] : test::llama_kinds()) {
    for (const auto& amp : {std::optional<torch::ScalarType>(), {torch::kBFloat16}}) {
      INFO(name << (amp ? " bfloat16" : " float32"));
      LlamaConfig config = test::config_of(shape);
      const auto plain = loss_and_gradients(config, amp);
      config.activation_checkpointing = true;
      const auto checkpointed = loss_and_gradients(config, amp);
      REQUIRE(plain.size() == checkpointed.size());
      for (std::size_t i = 0; i < plain.size(); ++i) CHECK(torch::equal(plain[i], checkpointed[i]));
    }
  }
}

TEST_CASE("a Llama in bfloat16 has nearly the loss of float32") {
  for (const auto& [name, shape] : test::llama_kinds()) {
    INFO(name);
    const auto exact = loss_and_gradients(test::config_of(shape), std::nullopt);
    const auto rounded = loss_and_gradients(test::config_of(shape), torch::kBFloat16);
    CHECK(torch::allclose(rounded[0], exact[0], 1e-3));
    CHECK_FALSE(torch::equal(rounded[0], exact[0]));
  }
}

TEST_CASE("a Llama's weights follow from its seed, with the standard deviations of GPT-2") {
  const LlamaShape shape = test::llama_kinds()[4].shape;
  const Llama a = tiny_llama(shape, 5);
  const Llama b = tiny_llama(shape, 5);
  const Llama c = tiny_llama(shape, 6);
  CHECK(torch::equal(a->parameters()[0], b->parameters()[0]));
  CHECK_FALSE(torch::equal(a->parameters()[0], c->parameters()[0]));
  for (const auto& [name, tensor, role] : a->model_parameters()) {
    INFO(name);
    if (tensor.dim() > 1) {
      const bool residual =
          name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos;
      CHECK(tensor.std().item<double>() ==
            Approx(residual ? 0.02 / std::sqrt(4.0) : 0.02).epsilon(0.05));
    } else {
      CHECK(tensor.eq(name.ends_with(".bias") ? 0 : 1).all().item<bool>());
    }
  }
}

}  // namespace ddp::train
