#include "trainer/task/generate/generate.h"

#include <set>

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

std::vector<int64_t> sample(GPT& model, const SamplingOptions& options) {
  std::vector<int64_t> tokens;
  generate(*model, {1, 2, 3}, options, [&](int64_t token) { tokens.push_back(token); });
  return tokens;
}

SamplingOptions options(int64_t count, uint64_t seed) {
  SamplingOptions result;
  result.max_new_tokens = count;
  result.seed = seed;
  return result;
}

/// Without any cache: the whole context at each step.
std::vector<int32_t> recomputed(GPT& model, std::vector<int32_t> tokens, int64_t count) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::vector<int32_t> result;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = std::min<int64_t>(static_cast<int64_t>(tokens.size()), model->block_size());
    const auto context =
        torch::tensor(std::vector<int64_t>(tokens.end() - length, tokens.end()), torch::kInt64);
    tokens.push_back(
        static_cast<int32_t>(model->forward(context.unsqueeze(0))[0][-1].argmax().item<int64_t>()));
    result.push_back(tokens.back());
  }
  return result;
}

/// Large weights: greedy texts that do not repeat one token.
GPT lively_model() {
  GPT model(test::tiny_config(3, 4, 32), 65, 16, 5);
  const torch::NoGradGuard no_grad;
  for (auto& p : model->parameters()) p.mul_(6.0);
  return model;
}

using Rows = std::vector<BatchGenerator::Row>;

std::vector<std::vector<int32_t>> continued(GPT& model, const Rows& rows,
                                            const SamplingOptions& options) {
  BatchGenerator generator(*model, rows, options);
  std::vector<std::vector<int32_t>> result(rows.size());
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto tokens = generator.next();
    for (std::size_t row = 0; row < rows.size(); ++row) result[row].push_back(tokens[row]);
  }
  return result;
}

}  // namespace

TEST_CASE("a cache gives the tokens of full recomputation, beyond the block too") {
  GPT model = lively_model();
  auto greedy = options(40, 1);
  greedy.greedy = true;
  const std::vector<int32_t> longer(21, 7);  // than the block
  for (const auto& prompt : {std::vector<int32_t>{1}, std::vector<int32_t>{9, 8, 7}, longer}) {
    const auto expected = recomputed(model, prompt, 40);
    CHECK(std::set<int32_t>(expected.begin(), expected.end()).size() > 4);
    CHECK(continued(model, {{prompt}}, greedy)[0] == expected);
  }
}

TEST_CASE("what a row becomes does not depend on those beside it") {
  GPT model = lively_model();
  auto sampled = options(30, 1);
  sampled.top_p = 0.9;
  sampled.repetition_penalty = 1.2;
  const Rows rows = {{{1, 2, 3}, 11}, {{4}, 12}, {{5, 6, 7, 8, 9, 10, 11}, 13}};
  const auto together = continued(model, rows, sampled);
  for (std::size_t row = 0; row < rows.size(); ++row)
    CHECK(continued(model, {rows[row]}, sampled)[0] == together[row]);
  CHECK(together[0] != together[1]);
}

TEST_CASE("a repetition penalty is greedy's alone, as in transformers") {
  GPT model = lively_model();
  auto greedy = options(12, 1);
  greedy.greedy = true;
  greedy.repetition_penalty = 1e6;
  const auto tokens = continued(model, {{{1}}}, greedy)[0];
  CHECK(std::set<int32_t>(tokens.begin(), tokens.end()).size() == tokens.size());
}

TEST_CASE("equal seeds write equal texts, beyond the block too") {
  GPT model(test::tiny_config(), 65, 16, 5);
  const auto a = sample(model, options(40, 1));
  CHECK(a.size() == 40);
  CHECK(a == sample(model, options(40, 1)));
  CHECK(a != sample(model, options(40, 2)));
}

TEST_CASE("greedy and top_k = 1 both take the most likely token") {
  GPT model(test::tiny_config(), 65, 16, 5);
  auto greedy = options(20, 1);
  greedy.greedy = true;
  auto top1 = options(20, 9);
  top1.top_k = 1;
  CHECK(sample(model, greedy) == sample(model, top1));
}

TEST_CASE(
    "top_k draws only from the k most likely tokens, a larger one than the vocabulary from all") {
  GPT model(test::tiny_config(), 65, 16, 5);
  const torch::NoGradGuard no_grad;
  model->eval();
  const auto best =
      std::get<1>(model->forward(torch::tensor({{1, 2, 3}}, torch::kInt64))[0][-1].topk(3));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    auto k3 = options(1, seed);
    k3.top_k = 3;
    CHECK(best.eq(sample(model, k3)[0]).any().item<bool>());
  }
  auto all = options(5, 1);
  all.top_k = 1000;
  CHECK(sample(model, all) == sample(model, options(5, 1)));
}

}  // namespace ddp::train
