// Checkpointed blocks and the chunked loss: less memory, the same numbers.
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/model/chunked_loss.h"
#include "trainer/optim/amp.h"

namespace ddp::train {
namespace {

constexpr int64_t kVocabularySize = 65;

struct Step {
  torch::Tensor loss;
  std::vector<torch::Tensor> gradients;
  torch::Tensor next_random;  ///< Of the default generator after it.
};

Step step(const GptConfig& config, std::optional<torch::ScalarType> amp = std::nullopt,
          double scale = 1.0) {
  GPT model(config, kVocabularySize, 16, 5);
  model->train();
  auto targets = test::random_tokens(3, 16, kVocabularySize, 2);
  targets.slice(1, 12, 16).fill_(-1);
  torch::manual_seed(11);
  Step result;
  {
    const Autocast autocast(torch::kCPU, amp);
    result.loss = model->loss(test::random_tokens(3, 16, kVocabularySize, 1), targets);
  }
  (result.loss * scale).backward();  // autocast is over by then
  for (const auto& p : model->parameters()) result.gradients.push_back(p.grad());
  result.next_random = torch::rand({4});
  return result;
}

void check_equal(const Step& a, const Step& b) {
  CHECK(torch::equal(a.loss, b.loss));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    CHECK(torch::equal(a.gradients[i], b.gradients[i]));
  CHECK(torch::equal(a.next_random, b.next_random));
}

GptConfig with_chunk(double chunk, bool tied) {
  GptConfig config = test::tiny_config();
  config.loss_chunk_size = {false, chunk};
  config.tie_weights = tied;
  return config;
}

}  // namespace

TEST_CASE("checkpointed blocks give the same bits, dropout and random numbers included") {
  GptConfig plain = test::tiny_config();
  GptConfig checkpointed = plain;
  checkpointed.activation_checkpointing = true;
  check_equal(step(plain), step(checkpointed));
  check_equal(step(plain, torch::kBFloat16), step(checkpointed, torch::kBFloat16));
}

TEST_CASE("a chunked loss gives the loss and the gradients of the whole") {
  for (const bool tied : {false, true}) {
    const Step whole = step(with_chunk(0, tied), std::nullopt, 8.0);
    for (const double chunk : {1.0, 7.0, 16.0, 47.0}) {
      INFO(chunk);
      const Step chunked = step(with_chunk(chunk, tied), std::nullopt, 8.0);
      CHECK(torch::allclose(chunked.loss, whole.loss, 1e-6));
      for (std::size_t i = 0; i < whole.gradients.size(); ++i)
        CHECK(torch::allclose(chunked.gradients[i], whole.gradients[i], 1e-4, 1e-6));
    }
  }
}

TEST_CASE("under autocast the chunks compute in the lower precision, the sums in float32") {
  const Step whole = step(with_chunk(0, false), torch::kBFloat16);
  const Step chunked = step(with_chunk(16, false), torch::kBFloat16);
  CHECK(chunked.loss.scalar_type() == torch::kFloat32);
  CHECK(torch::allclose(chunked.loss, whole.loss, 1e-5));
  for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
    CHECK(chunked.gradients[i].scalar_type() == torch::kFloat32);
    const auto difference = (chunked.gradients[i] - whole.gradients[i]).norm();
    CHECK(difference.item<float>() < 0.02F * whole.gradients[i].norm().item<float>());
  }
}

TEST_CASE("evaluation sums are those of the whole logits, chunk by chunk") {
  const torch::NoGradGuard no_grad;
  GPT model(with_chunk(0, false), kVocabularySize, 16, 5);
  GPT chunked(with_chunk(5, false), kVocabularySize, 16, 5);
  model->eval();
  chunked->eval();
  const auto inputs = test::random_tokens(3, 16, kVocabularySize, 1);
  const auto logits = model->forward(inputs);
  auto targets = logits.argmax(-1);
  targets.slice(1, 3).copy_(test::random_tokens(3, 13, kVocabularySize, 2));
  targets.slice(1, 12).fill_(-1);
  for (auto* gpt : {&model, &chunked}) {
    const auto sums = (*gpt)->evaluation_sums(inputs, targets);
    CHECK(sums[0].item<float>() ==
          Approx(36 * model->loss(inputs, targets).item<float>()).epsilon(1e-6));
    CHECK(sums[1].item<float>() == logits.argmax(-1).eq(targets).sum().item<float>());
    CHECK(sums[1].item<float>() >= 9);
    CHECK(sums[2].item<float>() == 36);
  }
}

}  // namespace ddp::train
