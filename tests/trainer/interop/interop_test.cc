// Folders of transformers, both ways.
#include <algorithm>
#include <initializer_list>

#include "tests/support/catch.h"

#include "tests/support/skip.h"
#include "tests/trainer/interop/greedy_tokens.h"
#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/interop/export_model.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

constexpr int64_t kVocabulary = 65;
constexpr int64_t kLength = 64;
constexpr const char* kText = "A quick text,\nwith \"quotes\" and a \xE2\x82\xAC.";

/// The characters of the text, and others until the vocabulary is full.
CharTokenizer text_tokenizer() {
  std::vector<std::string> characters = CharTokenizer::from_text(kText).characters();
  for (char c = '0'; static_cast<int64_t>(characters.size()) < kVocabulary; ++c) {
    const std::string character(1, c);
    if (std::find(characters.begin(), characters.end(), character) == characters.end())
      characters.push_back(character);
  }
  return CharTokenizer(characters);
}

GptConfig config_with(Activation activation, bool tied) {
  GptConfig config = test::tiny_config(2, 4, 64);
  config.activation = activation;
  config.tie_weights = tied;
  return config;
}

/// Biases and norms away from their trivial initial values.
GPT random_model(const GptConfig& config) {
  GPT model(config, kVocabulary, kLength, 5);
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (auto& p : model->parameters())
    p.add_(torch::randn(p.sizes(), generator, torch::kFloat32), 0.05);
  model->eval();
  return model;
}

std::vector<NamedTensor> weights_of(const GPT& model) {
  std::vector<NamedTensor> result;
  for (const auto& p : model->model_parameters()) result.push_back({p.name, p.tensor});
  return result;
}

ExportedModel exported(const GptConfig& gpt, const GPT& model) {
  Config config;
  config.gpt = gpt;
  config.data.block_size = kLength;
  return {config, kVocabulary, weights_of(model)};
}

void save(const std::string& path, const NamedTensors& tensors) {
  StateBuffer buffer(tensors);
  buffer.begin_copy(tensors, nullptr);
  publish_safetensors(path, "", {}, buffer.tensors());
}

void export_and_check(Activation activation, bool tied) {
  const test::TempDir dir;
  const CharTokenizer tokenizer = text_tokenizer();
  const GptConfig config = config_with(activation, tied);
  GPT model = random_model(config);
  const torch::NoGradGuard no_grad;
  const std::string folder = dir.file("exported");
  export_model(exported(config, model), tokenizer, ExportFormat::kHuggingFace, folder);
  const auto inputs = test::random_tokens(3, kLength, kVocabulary, 1);
  const auto tokens = tokenizer.encode(kText);
  save(dir.file("dump.safetensors"),
       {{"inputs", inputs},
        {"logits", model->forward(inputs)},
        {"prompt", torch::tensor({1, 2, 3}, torch::kInt64)},
        {"greedy", test::greedy_tokens(*model, {1, 2, 3}, 50)},
        {"tokens", torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()))}});
  test::ask_peer({"check", folder, dir.file("dump.safetensors"), kText});
}

}  // namespace

TEST_CASE("transformers reads an exported model: equal logits, greedy tokens and token ids",
          "[peer]") {
  export_and_check(Activation::kGeluTanh, true);
}

TEST_CASE("so it does with exact GELU and a head of its own", "[peer]") {
  export_and_check(Activation::kGelu, false);
}

TEST_CASE("torch.load with weights_only reads an exported state dict", "[peer]") {
  const test::TempDir dir;
  GPT model = random_model(config_with(Activation::kGelu, false));
  export_model(exported(config_with(Activation::kGelu, false), model), text_tokenizer(),
               ExportFormat::kTorch, dir.path());
  NamedTensors weights;
  for (const auto& weight : weights_of(model))
    weights.emplace_back(weight.name, weight.tensor.detach());
  save(dir.file("dump.safetensors"), weights);
  test::ask_peer({"torch", dir.file("model.pt"), dir.file("dump.safetensors")});
}

TEST_CASE("a GPT-2 that transformers made gives the same logits and loss here", "[peer]") {
  for (const bool tied : {true, false}) {
    const test::TempDir dir;
    if (!test::ask_peer({"make", dir.path(), tied ? "gelu_new" : "gelu", tied ? "1" : "0"})) return;
    const GptConfig config = config_with(tied ? Activation::kGeluTanh : Activation::kGelu, tied);
    GPT model(config, kVocabulary, 32, 9);
    load_pretrained(dir.path(), kGpt2Layout, weights_of(model));
    model->eval();
    const torch::NoGradGuard no_grad;
    const SafetensorsFile expected(dir.file("expected.safetensors"));
    const auto inputs = test::read_tensor(expected, "inputs", torch::kInt64);
    const auto targets = test::read_tensor(expected, "targets", torch::kInt64);
    CHECK(torch::allclose(model->forward(inputs),
                          test::read_tensor(expected, "logits", torch::kFloat32), 0, 1e-5));
    CHECK(torch::allclose(model->loss(inputs, targets).reshape({1}),
                          test::read_tensor(expected, "loss", torch::kFloat32), 0, 1e-6));
  }
}

TEST_CASE(
    "an exported folder is read back bit for bit, a shorter block keeps the first positions") {
  const test::TempDir dir;
  const GptConfig config = config_with(Activation::kGeluTanh, true);
  GPT model = random_model(config);
  export_model(exported(config, model), text_tokenizer(), ExportFormat::kHuggingFace, dir.path());
  GPT shorter(config, kVocabulary, 16, 9);
  load_pretrained(dir.path(), kGpt2Layout, weights_of(shorter));
  for (const auto& weight : weights_of(model)) {
    INFO(weight.name);
    for (const auto& read : weights_of(shorter)) {
      if (read.name == weight.name)
        CHECK(torch::equal(read.tensor, weight.tensor.narrow(0, 0, read.tensor.size(0))));
    }
  }
}

TEST_CASE("the tokenizers of exported folders are read back") {
  const test::TempDir dir;
  const GptConfig config = config_with(Activation::kGelu, true);
  GPT model = random_model(config);
  const CharTokenizer characters = text_tokenizer();
  const ByteTokenizer bytes;
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&characters, &bytes}) {
    export_model(exported(config, model), *tokenizer, ExportFormat::kHuggingFace, dir.path());
    CHECK(load_tokenizer(dir.path())->state() == tokenizer->state());
  }
}

TEST_CASE("weights of another shape are refused with every difference, and nothing is copied") {
  const test::TempDir dir;
  GptConfig config = config_with(Activation::kGeluTanh, true);
  GPT model = random_model(config);
  export_model(exported(config, model), text_tokenizer(), ExportFormat::kHuggingFace, dir.path());
  GptConfig other = config;
  other.n_layer = 1;
  GPT target(other, 70, kLength, 9);
  const auto before = target->parameters()[0].clone();
  std::string text;
  try {
    load_pretrained(dir.path(), kGpt2Layout, weights_of(target));
  } catch (const UserError& error) {
    text = error.what();
  }
  CHECK_THAT(text, Catch::Contains("transformer.wte.weight is [65, 64] there, [70, 64] here") &&
                       Catch::Contains("transformer.h.1.ln_1.bias is not a parameter") &&
                       Catch::Contains("more"));
  CHECK(torch::equal(before, target->parameters()[0]));
}

}  // namespace ddp::train
