// Checkpointed blocks and the chunked loss: less memory, the same numbers.
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/blocks/chunked_loss.h"
#include "trainer/optim/amp.h"

namespace ddp::train {
namespace {

constexpr int64_t kVocabularySize = 65;

struct Step {
  torch::Tensor loss;
  std::vector<torch::Tensor> gradients;
  torch::Tensor next_random;  ///< From the default generator after it.
};

void add_random_adapters(torch::nn::Module& model) {
  add_adapters(model, {.rank = 4, .targets = {"c_attn", "wte", "lm_head"}}, 3);
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  for (const auto& p : model.parameters())
    if (p.requires_grad()) p.normal_(0.0, 0.05, generator);
}

Step step(const GptConfig& config, std::optional<torch::ScalarType> amp = std::nullopt,
          double scale = 1.0, bool adapted = false) {
  GPT model(config, kVocabularySize, 16, 5);
  if (adapted) add_random_adapters(*model);
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
  for (const auto& p : model->parameters())
    if (p.requires_grad()) result.gradients.push_back(p.grad());
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
  for (const auto& [tied, adapted] :
       {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    const Step whole = step(with_chunk(0, tied), std::nullopt, 8.0, adapted);
    for (const double chunk : {1.0, 7.0, 16.0, 47.0}) {
      INFO(chunk << " " << adapted);
      const Step chunked = step(with_chunk(chunk, tied), std::nullopt, 8.0, adapted);
      REQUIRE(chunked.gradients.size() == whole.gradients.size());
      CHECK(torch::allclose(chunked.loss, whole.loss, 1e-6));
      for (std::size_t i = 0; i < whole.gradients.size(); ++i)
        CHECK(torch::allclose(chunked.gradients[i], whole.gradients[i], 1e-4, 1e-6));
    }
  }
}

TEST_CASE("the chunked loss has the same gradients before a frozen output layer") {
  const auto loss_and_gradient = [](bool frozen) {
    GPT model(with_chunk(7.0, /*tied=*/false), kVocabularySize, 16, 5);
    model->named_parameters()["lm_head.weight"].set_requires_grad(!frozen);
    const auto tokens = test::random_tokens(3, 16, kVocabularySize, 1);
    model->eval();
    model->loss(tokens, tokens).backward();
    CHECK(model->named_parameters()["lm_head.weight"].grad().defined() != frozen);
    return model->parameters().front().grad();
  };
  CHECK(torch::equal(loss_and_gradient(true), loss_and_gradient(false)));
}

TEST_CASE("under autocast the chunks compute in the lower precision, the sums in float32") {
  for (const bool adapted : {false, true}) {
    const Step whole = step(with_chunk(0, false), torch::kBFloat16, 1.0, adapted);
    const Step chunked = step(with_chunk(16, false), torch::kBFloat16, 1.0, adapted);
    CHECK(chunked.loss.scalar_type() == torch::kFloat32);
    CHECK(torch::allclose(chunked.loss, whole.loss, adapted ? 1e-3 : 1e-5));
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      CHECK(chunked.gradients[i].scalar_type() == torch::kFloat32);
      const auto difference = (chunked.gradients[i] - whole.gradients[i]).norm();
      CHECK(difference.item<float>() < 0.02F * whole.gradients[i].norm().item<float>());
    }
  }
}

TEST_CASE("in float16 the gradient of a frequent word is summed in float32") {
  constexpr int64_t N = 4096;
  const auto x_NC = torch::full({N, 8}, 64.0F).requires_grad_();
  const auto weight_VC = torch::zeros({4, 8}).requires_grad_();
  const auto targets_N = torch::zeros({N}, torch::kInt64);
  torch::Tensor loss;
  {
    const Autocast autocast(torch::kCPU, torch::kFloat16);
    loss = chunked_cross_entropy_sum(x_NC, weight_VC, targets_N, N);
  }
  (loss / N).backward();
  // Sums over all 4096 rows: (1/4 - 1) * 64 for the target; their sum is beyond float16.
  CHECK(weight_VC.grad()[0].eq(-48.0F).all().item<bool>());
  CHECK(weight_VC.grad()[1].eq(16.0F).all().item<bool>());
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

TEST_CASE("padded logits change nothing but the shape of the products") {
  for (const bool tied : {false, true}) {
    for (const double chunk : {0.0, 7.0}) {
      INFO(tied << " " << chunk);
      GptConfig padded = with_chunk(chunk, tied);
      padded.pad_vocab_to_multiple_of = {false, 64};
      const Step plain = step(with_chunk(chunk, tied), std::nullopt, 8.0, tied);
      const Step with_padding = step(padded, std::nullopt, 8.0, tied);
      CHECK(torch::allclose(with_padding.loss, plain.loss, 1e-6));
      for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
        REQUIRE(with_padding.gradients[i].sizes() == plain.gradients[i].sizes());
        CHECK(torch::allclose(with_padding.gradients[i], plain.gradients[i], 1e-4, 1e-6));
      }
      const Step halved = step(padded, torch::kBFloat16, 1.0, tied);
      const Step halved_plain = step(with_chunk(chunk, tied), torch::kBFloat16, 1.0, tied);
      CHECK(torch::allclose(halved.loss, halved_plain.loss, 1e-5));
      for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
        CHECK(halved.gradients[i].scalar_type() == torch::kFloat32);
        const auto difference = (halved.gradients[i] - halved_plain.gradients[i]).norm();
        CHECK(difference.item<float>() <= 0.02F * halved_plain.gradients[i].norm().item<float>());
      }
    }
  }
}

TEST_CASE("the chunked loss over padded logits is the one over plain logits") {
  torch::manual_seed(3);
  const auto x = torch::randn({20, 8}, torch::kFloat32);
  const auto targets = torch::randint(-1, 13, {20}, torch::kInt64);
  const auto run = [&](int64_t padding) {
    const auto x_leaf = x.clone().requires_grad_();
    auto weight = torch::linspace(-1, 1, 104, torch::kFloat32).view({13, 8}).sin();
    weight.requires_grad_();
    const auto sum = chunked_cross_entropy_sum(x_leaf, weight, targets, 6, padding);
    sum.backward();
    return std::vector<torch::Tensor>{sum.detach(), x_leaf.grad(), weight.grad()};
  };
  const auto plain = run(0);
  const auto padded = run(3);
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(torch::allclose(padded[i], plain[i], 1e-5, 1e-6));
}

TEST_CASE("labels are smoothed as by torch's CrossEntropyLoss, in one piece and in chunks") {
  constexpr double kSmoothing = 0.1;
  torch::manual_seed(3);
  const auto x = torch::randn({20, 8}, torch::kFloat32);
  const auto targets = torch::randint(-1, 13, {20}, torch::kInt64);
  const auto run = [&](const auto& loss_of) {
    const auto x_leaf = x.clone().requires_grad_();
    auto weight = torch::linspace(-1, 1, 104, torch::kFloat32).view({13, 8}).sin();
    weight.requires_grad_();
    const torch::Tensor sum = loss_of(x_leaf, weight);
    sum.backward();
    return std::vector<torch::Tensor>{sum.detach(), x_leaf.grad(), weight.grad()};
  };
  const auto theirs = run([&](const auto& x_NC, const auto& weight_VC) {
    return at::cross_entropy_loss(at::linear(x_NC, weight_VC), targets, {}, at::Reduction::Sum, -1,
                                  kSmoothing);
  });
  for (const int64_t padding : {0, 3}) {
    const auto ours = run([&](const auto& x_NC, const auto& weight_VC) {
      return chunked_cross_entropy_sum(x_NC, weight_VC, targets, 6, padding, {}, 0.0, kSmoothing);
    });
    for (std::size_t i = 0; i < ours.size(); ++i)
      CHECK(torch::allclose(ours[i], theirs[i], i == 0 ? 1e-6 : 1e-5, 1e-6));
  }
  for (const double chunk : {0.0, 7.0}) {
    GPT model(with_chunk(chunk, false), kVocabularySize, 16, 5);
    model->eval();
    model->set_label_smoothing(kSmoothing);
    const auto inputs = test::random_tokens(3, 16, kVocabularySize, 1);
    const auto next = test::random_tokens(3, 16, kVocabularySize, 2);
    const auto logits = model->forward(inputs).view({-1, kVocabularySize});
    const auto expected =
        at::cross_entropy_loss(logits, next.reshape({-1}), {}, at::Reduction::Mean, -1, kSmoothing);
    CHECK(model->loss(inputs, next).item<float>() == Approx(expected.item<float>()).epsilon(1e-6));
    const auto plain = at::cross_entropy_loss(logits, next.reshape({-1}), {}, at::Reduction::Sum);
    const auto sums = model->evaluation_sums(inputs, next);  // without
    CHECK(sums[0].item<float>() == Approx(plain.item<float>()).epsilon(1e-6));
  }
}

TEST_CASE("a token that pads the logits is never the most likely one") {
  const torch::NoGradGuard no_grad;
  GptConfig config = with_chunk(5, false);
  config.pad_vocab_to_multiple_of = {false, 64};
  GPT padded(config, kVocabularySize, 16, 5);
  GPT plain(with_chunk(5, false), kVocabularySize, 16, 5);
  for (auto* gpt : {&padded, &plain}) {
    (*gpt)->eval();
    auto parameters = (*gpt)->named_parameters();
    parameters["transformer.ln_f.weight"].zero_();
    parameters["transformer.ln_f.bias"].fill_(1.0);
    parameters["lm_head.weight"].abs_().neg_();  // all logits are below those of the padding
  }
  const auto inputs = test::random_tokens(3, 16, kVocabularySize, 1);
  const auto targets = plain->forward(inputs).argmax(-1);
  const auto sums = padded->evaluation_sums(inputs, targets);
  CHECK(torch::allclose(sums, plain->evaluation_sums(inputs, targets), 1e-6));
  CHECK(sums[1].item<float>() == 48);
}

TEST_CASE("logits are padded to the multiple, on CPUs only when asked") {
  const auto padding = [](const AutoNumber& multiple, int64_t vocabulary) {
    GptConfig config = test::tiny_config();
    config.pad_vocab_to_multiple_of = multiple;
    return GPT(config, vocabulary, 16, 5)->logits_padding();
  };
  CHECK(padding({}, 65) == 0);
  CHECK(padding({false, 0}, 65) == 0);
  CHECK(padding({false, 1}, 65) == 0);
  CHECK(padding({false, 64}, 65) == 63);
  CHECK(padding({false, 64}, 128) == 0);
  CHECK(padding({false, 128}, 50257) == 47);
}

}  // namespace ddp::train
