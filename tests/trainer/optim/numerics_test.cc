// The model against Python's torch (and transformers' GPT-2 where it is installed): same weights,
// same batch.
#include <cstdlib>
#include "tests/support/catch.h"

#include "tests/support/skip.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/optim/fused_optimizers.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {
namespace {

constexpr int kSkipped = 77;

// Everything the peer needs: weights, batch, what this implementation computed from them, and the
// step it took.
std::string dump(const test::TempDir& dir, const GptConfig& config) {
  GPT model(config, 65, 32, 5);
  {
    // Biases and norms away from their trivial initial values.
    const torch::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    for (auto& p : model->parameters())
      p.add_(torch::randn(p.sizes(), generator, torch::kFloat32), 0.05);
  }
  NamedTensors tensors;
  std::vector<Parameter> parameters;
  for (const auto& p : model->model_parameters()) {
    tensors.emplace_back("before." + p.name, p.tensor.detach().clone());
    parameters.push_back({p.name, p.tensor, p.role});
  }
  Adam optimizer(trained_parameters({}, parameters), OptimizerConfig(), Adam::Decay::kDecoupled);
  model->eval();
  const auto inputs = test::random_tokens(3, 32, 65, 1);
  const auto targets = test::random_tokens(3, 32, 65, 2);
  const auto loss = model->loss(inputs, targets);
  loss.backward();
  tensors.emplace_back("inputs", inputs);
  tensors.emplace_back("targets", targets);
  tensors.emplace_back("logits", model->forward(inputs).detach());
  tensors.emplace_back("loss", loss.detach().reshape({1}));
  for (const auto& p : model->model_parameters())
    tensors.emplace_back("grad." + p.name, p.tensor.grad().clone());
  optimizer.step(OptimizerConfig().learning_rate, torch::zeros({}));
  for (const auto& p : model->model_parameters())
    tensors.emplace_back("after." + p.name, p.tensor.detach());

  SnapshotMeta meta;
  meta.config_json = "{}";
  const std::string path = dir.file("dump.safetensors");
  test::save_snapshot(path, meta, tensors);
  return path;
}

/// `peer`: torch, or transformers.
void compare(const GptConfig& config, const std::string& peer) {
  const test::TempDir dir;
  const std::string command =
      std::string(DDP_TEST_PYTHON) + " " + DDP_TEST_DIR + "/optim/numerics_peer.py " +
      dump(dir, config) + " " + std::to_string(config.n_head) + " " +
      (config.activation == Activation::kGeluTanh ? "tanh " : "none ") + peer;
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) {
    return ddp::test::say_skipped(std::string(DDP_TEST_PYTHON) + " cannot import safetensors and " +
                                  peer + " (./scripts/setup.sh --test)");
  }
  CHECK(WEXITSTATUS(status) == 0);
}

GptConfig like_gpt2() {
  GptConfig config = test::tiny_config(2, 4, 64);
  config.activation = Activation::kGeluTanh;
  config.tie_weights = true;
  return config;
}

}  // namespace

TEST_CASE("logits, loss, gradients and one AdamW step are those of Python's torch", "[peer]") {
  compare(test::tiny_config(2, 4, 64), "torch");
}

TEST_CASE("so they are with tanh GELU and a tied head", "[peer][long]") {
  compare(like_gpt2(), "torch");
}

TEST_CASE("with tanh GELU and a tied head they are those of transformers' GPT-2 too", "[peer]") {
  compare(like_gpt2(), "transformers");
}

}  // namespace ddp::train
