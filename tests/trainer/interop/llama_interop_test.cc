// Folders of transformers' Llama, Qwen2 and Qwen3, both ways.
#include "tests/support/catch.h"

#include "tests/trainer/interop/greedy_tokens.h"
#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/interop/export_model.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/model/llama/llama.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/byte_tokenizer.h"

namespace ddp::train {
namespace {

constexpr int64_t kContext = 64;
constexpr const char* kMessage = "A quick text,\nwith \"quotes\" and a \xE2\x82\xAC.";

std::vector<NamedTensor> weights_of(const Llama& model) {
  std::vector<NamedTensor> result;
  for (const auto& p : model->model_parameters()) result.push_back({p.name, p.tensor});
  return result;
}

/// Biases and norms away from their trivial initial values.
Llama random_llama(const LlamaShape& shape, int64_t vocab_size) {
  Llama model(test::config_of(shape), vocab_size, kContext, 5);
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (auto& p : model->parameters())
    p.add_(torch::randn(p.sizes(), generator, torch::kFloat32), 0.05);
  model->eval();
  return model;
}

void export_llama(const LlamaShape& shape, const Llama& model, const std::string& folder) {
  const ByteTokenizer tokenizer;
  export_model({test::whole_config(test::config_of(shape), kContext), model->vocab_size(),
                weights_of(model)},
               tokenizer, ExportFormat::kHuggingFace, folder);
}

Llama read_folder(const std::string& folder, int64_t vocab_size) {
  const PretrainedLlama there = read_pretrained_llama(folder);
  CHECK(there.unsupported.empty());
  Llama model(test::config_of(there.shape), vocab_size, kContext, std::nullopt);
  load_pretrained(folder, kLlamaLayout, weights_of(model));
  return model;
}

std::vector<test::LlamaKind> all_kinds() {
  auto kinds = test::llama_kinds();
  kinds.push_back(test::dynamic_llama());
  return kinds;
}

/// By gradient descent on one batch, as interop_peer.py trains.
torch::Tensor ten_losses(Llama& model, const torch::Tensor& inputs, const torch::Tensor& targets) {
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  std::vector<torch::Tensor> losses;
  for (int i = 0; i < 10; ++i) {
    optimizer.zero_grad();
    losses.push_back(model->loss(inputs, targets));
    losses.back().backward();
    optimizer.step();
  }
  return torch::stack(losses).detach();
}

void check_gradients(const Llama& model, const SafetensorsFile& expected) {
  for (const auto& p : model->model_parameters()) {
    INFO(p.name);
    const auto theirs = test::read_tensor(expected, "grad." + p.name, torch::kFloat32);
    CHECK(torch::allclose(p.tensor.grad(), theirs, 1e-4, 1e-6));
  }
}

}  // namespace

TEST_CASE("each Llama that transformers made gives its logits, loss, gradients and text here",
          "[peer]") {
  for (const auto& [name, shape] : all_kinds()) {
    INFO(name);
    const test::TempDir dir;
    if (!test::ask_peer({"make_llama", dir.path(), name})) return;
    const SafetensorsFile expected(dir.file("expected.safetensors"));
    Llama model = read_folder(dir.path(), 65);
    model->eval();
    const auto inputs = test::read_tensor(expected, "inputs", torch::kInt64);
    const auto targets = test::read_tensor(expected, "targets", torch::kInt64);
    const auto loss = model->loss(inputs, targets);
    CHECK(torch::allclose(loss.reshape({1}), test::read_tensor(expected, "loss", torch::kFloat32),
                          0, 1e-6));
    loss.backward();
    check_gradients(model, expected);
    {
      const torch::NoGradGuard no_grad;
      CHECK(torch::allclose(model->forward(inputs),
                            test::read_tensor(expected, "logits", torch::kFloat32), 0, 1e-5));
      const auto text = test::read_tensor(expected, "greedy", torch::kInt64);
      CHECK(text.size(0) == 50);
      CHECK(torch::equal(test::greedy_tokens(*model, {1, 2, 3}, 50), text));
    }
    CHECK(torch::allclose(ten_losses(model, inputs, targets),
                          test::read_tensor(expected, "losses", torch::kFloat32), 0, 1e-5));
  }
}

TEST_CASE("transformers reads each exported Llama: equal logits, greedy tokens and token ids",
          "[peer]") {
  const ByteTokenizer tokenizer;
  const auto tokens = tokenizer.encode(kMessage);
  for (const auto& [name, shape] : all_kinds()) {
    INFO(name);
    const test::TempDir dir;
    Llama model = random_llama(shape, tokenizer.size());
    const torch::NoGradGuard no_grad;
    export_llama(shape, model, dir.file("exported"));
    const auto inputs = test::random_tokens(3, kContext, tokenizer.size(), 1);
    const NamedTensors dump = {
        {"inputs", inputs},
        {"logits", model->forward(inputs)},
        {"prompt", torch::tensor({1, 2, 3}, torch::kInt64)},
        {"greedy", test::greedy_tokens(*model, {1, 2, 3}, 50)},
        {"tokens", torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()))}};
    StateBuffer buffer(dump);
    buffer.begin_copy(dump, nullptr);
    publish_safetensors(dir.file("dump.safetensors"), "", {}, buffer.tensors());
    test::ask_peer({"check", dir.file("exported"), dir.file("dump.safetensors"), kMessage});
  }
}

TEST_CASE("an exported Llama is read back bit for bit, shape included") {
  for (const auto& [name, shape] : all_kinds()) {
    INFO(name);
    const test::TempDir dir;
    const Llama model = random_llama(shape, 256);
    export_llama(shape, model, dir.path());
    const Llama read = read_folder(dir.path(), 256);
    const auto expected = weights_of(model);
    const auto found = weights_of(read);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].name == expected[i].name);
      CHECK(torch::equal(found[i].tensor, expected[i].tensor));
    }
  }
}

TEST_CASE("a Llama that transformers does not have is exported without config.json only") {
  LlamaShape both = test::llama_kind("qwen3");
  both.qkv_bias = true;
  const test::TempDir dir;
  const Llama model = random_llama(both, 256);
  CHECK_THROWS_WITH(
      export_llama(both, model, dir.path()),
      Catch::Contains(
          "Qwen3ForCausalLM cannot be such a model: qkv_bias is false there, true here"));
}

}  // namespace ddp::train
