#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/gpt/gpt.h"
#include "trainer/model/llama/llama.h"

namespace ddp::train {
namespace {

using test::random_tokens;

constexpr int64_t kTokens = 65;
constexpr int64_t kWidth = 16;

struct NamedModel {
  std::string name;
  std::shared_ptr<CausalModel> model;
};

std::vector<NamedModel> models() {
  std::vector<NamedModel> result;
  for (const bool fused : {true, false}) {
    for (const bool checkpointed : {true, false}) {
      GptConfig config = test::tiny_config();
      config.attn_pdrop = config.resid_pdrop = config.embd_pdrop = 0.0;
      config.fused_cpu_kernels = fused;
      config.activation_checkpointing = checkpointed;
      result.push_back({"gpt", GPT(config, kTokens, kWidth, 5).ptr()});
    }
  }
  for (const auto& [name, shape] : test::llama_kinds()) {
    LlamaConfig config = test::config_of(shape);
    config.activation_checkpointing = name == "llama3";
    config.router_aux_loss_coef = 0.0;  // which is not a sum over documents
    result.push_back({name, Llama(config, kTokens, kWidth, 5).ptr()});
  }
  return result;
}

/// Row 0 holds documents of 5, 1 and 10 tokens, row 1 one of 16.
torch::Tensor positions_of_two_rows() {
  const auto upto = [](int64_t count) { return torch::arange(count, torch::kInt64); };
  return torch::stack({torch::cat({upto(5), upto(1), upto(10)}), upto(kWidth)});
}

/// The documents of the two rows, each in a row of its own.
std::vector<torch::Tensor> documents(const torch::Tensor& x_BT) {
  return {x_BT[0].slice(0, 0, 5).unsqueeze(0), x_BT[0].slice(0, 5, 6).unsqueeze(0),
          x_BT[0].slice(0, 6, 16).unsqueeze(0), x_BT[1].unsqueeze(0)};
}

std::vector<torch::Tensor> gradients_of(CausalModel& model, const torch::Tensor& loss) {
  model.zero_grad();
  loss.backward();
  std::vector<torch::Tensor> result;
  for (const auto& p : model.parameters()) result.push_back(p.grad().clone());
  return result;
}

void check_close(const std::vector<torch::Tensor>& one, const std::vector<torch::Tensor>& other) {
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    CHECK(torch::allclose(one[i], other[i], /*rtol=*/1e-4, /*atol=*/1e-6));
}

}  // namespace

TEST_CASE("packed documents have the logits of documents alone") {
  const auto tokens = random_tokens(2, kWidth, kTokens, 1);
  for (const auto& [name, model] : models()) {
    INFO(name);
    model->eval();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> alone;
    for (const auto& document : documents(tokens)) alone.push_back(model->forward(document)[0]);
    const auto packed = model->forward(tokens, positions_of_two_rows());
    CHECK(torch::allclose(packed.flatten(0, 1), torch::cat(alone), 1e-5, 1e-6));
    CHECK_FALSE(torch::allclose(packed[0], model->forward(tokens)[0], 1e-3, 1e-4));
  }
}

TEST_CASE("packed documents have the loss and gradients of documents alone") {
  const auto tokens = random_tokens(2, kWidth, kTokens, 1);
  const auto targets = random_tokens(2, kWidth, kTokens, 2);
  for (const auto& [name, model] : models()) {
    INFO(name);
    model->train();
    const auto packed = gradients_of(*model, model->loss(tokens, targets, positions_of_two_rows()));
    auto sum = torch::zeros({});
    const auto inputs = documents(tokens);
    const auto outputs = documents(targets);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      sum = sum + model->loss(inputs[i], outputs[i]) * inputs[i].numel();
    check_close(packed, gradients_of(*model, sum / tokens.numel()));
  }
}

TEST_CASE("no token changes a logit of another document, to the bit") {
  const auto tokens = random_tokens(2, kWidth, kTokens, 1);
  for (const auto& [name, model] : models()) {
    INFO(name);
    // An expert multiplies the tokens of all documents together, and the number of its rows decides
    // how a CPU rounds.
    const double tolerance = name == "qwen3_moe" ? 1e-5 : 0.0;
    const auto equal = [&](const torch::Tensor& some, const torch::Tensor& other) {
      return torch::allclose(some, other, tolerance, tolerance);
    };
    model->eval();
    const torch::NoGradGuard no_grad;
    const auto before = model->forward(tokens, positions_of_two_rows());
    auto changed = tokens.clone();
    changed[0][2] = (changed[0][2] + 1) % kTokens;
    const auto after = model->forward(changed, positions_of_two_rows());
    CHECK(equal(before[0].slice(0, 0, 2), after[0].slice(0, 0, 2)));
    CHECK_FALSE(equal(before[0].slice(0, 2, 5), after[0].slice(0, 2, 5)));
    CHECK(equal(before[0].slice(0, 5), after[0].slice(0, 5)));
    CHECK(equal(before[1], after[1]));
  }
}

}  // namespace ddp::train
