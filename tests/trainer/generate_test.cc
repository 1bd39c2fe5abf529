#include "trainer/model/generate.h"

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

std::vector<int64_t> sample(GPT& model, const SamplingOptions& options) {
  std::vector<int64_t> tokens;
  generate(model, {1, 2, 3}, options, [&](int64_t token) { tokens.push_back(token); });
  return tokens;
}

SamplingOptions options(int64_t count, uint64_t seed) {
  SamplingOptions result;
  result.max_new_tokens = count;
  result.seed = seed;
  return result;
}

}  // namespace

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
