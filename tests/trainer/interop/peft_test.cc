// Adapters as peft and transformers see them.
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/interop/export_model.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/task/adapted_model.h"
#include "trainer/tokenizer/byte_tokenizer.h"

namespace ddp::train {
namespace {

constexpr int64_t kPeftContext = 64;

struct Case {
  Config config;
  std::vector<std::string> targets;
  std::vector<std::string> modules;  ///< target_modules in adapter_config.json
};

Config gpt_config() {
  Config config;
  config.gpt = test::tiny_config();
  config.data.block_size = kPeftContext;
  return config;
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {gpt_config(), {"c_attn"}, {"c_attn"}},
      {gpt_config(), {"*"}, {"c_attn", "c_fc", "c_proj"}},
      {gpt_config(), {"h.1.mlp.*"}, {"transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"}},
      {gpt_config(), {"c_attn", "wte", "lm_head"}, {"c_attn", "lm_head", "wte"}},
      {gpt_config(), {"wte"}, {"wte"}}};
  all[3].config.gpt.tie_weights = false;
  for (const auto& [name, shape] : test::llama_kinds()) {
    if (shape.family == "phi3") continue;  // its file has other layers
    all.push_back({test::whole_config(test::config_of(shape), kPeftContext),
                   {"[qv]_proj", "mlp.down*"},
                   {"down_proj", "q_proj", "v_proj"}});
    if (shape.n_expert == 0) continue;
    all.back().targets = {"[qv]_proj"};
    all.back().modules = {"q_proj", "v_proj"};
  }
  for (const char* name : {"llama3", "smollm2", "gemma2"}) {  // the last two are tied
    all.push_back({test::whole_config(test::config_of(test::llama_kind(name)), kPeftContext),
                   {"embed_tokens", "q_proj", "lm_head"},
                   {"embed_tokens", "lm_head", "q_proj"}});
  }
  for (Case& each : all) {
    each.config.lora = {.rank = 4, .alpha = 10.0, .dropout = 0.1, .targets = each.targets};
    each.config.optimizer.weight_decay = 0.0;
  }
  return all;
}

bool has_tokens(const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(), is_of_tokens);
}

std::vector<NamedTensor> named(const std::vector<Parameter>& parameters) {
  std::vector<NamedTensor> result;
  for (const auto& p : parameters) result.push_back({p.name, p.tensor});
  return result;
}

/// A random base, exported to base/, with random adapters; in eval mode.
std::shared_ptr<CausalModel> adapted_model(Config config, const test::TempDir& dir) {
  const ByteTokenizer tokenizer;
  auto model = make_causal_model(config, tokenizer.size(), 5);
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (auto& p : model->parameters())
    p.add_(torch::randn(p.sizes(), generator, torch::kFloat32), 0.05);
  export_model({config, tokenizer.size(), named(trainable_parameters(model->model_parameters()))},
               tokenizer, ExportFormat::kHuggingFace, dir.file("base"));
  add_adapters(*model, config.lora, 9);
  for (const auto& p : trainable_parameters(model->model_parameters())) {
    if (p.name.ends_with("lora_B.weight") || p.name.ends_with("lora_embedding_A"))
      p.tensor.add_(torch::randn(p.tensor.sizes(), generator, torch::kFloat32), 0.05);
  }
  model->eval();
  return model;
}

std::string written(const NamedTensors& dump, const test::TempDir& dir) {
  StateBuffer buffer(dump);
  buffer.begin_copy(dump, nullptr);
  publish_safetensors(dir.file("dump.safetensors"), "", {}, buffer.tensors());
  return dir.file("dump.safetensors");
}

std::string dump_of(CausalModel& model, const test::TempDir& dir) {
  const torch::NoGradGuard no_grad;
  const auto inputs = test::random_tokens(3, kPeftContext, model.vocab_size(), 1);
  return written({{"inputs", inputs}, {"logits", model.forward(inputs)}}, dir);
}

constexpr int64_t kPrompt = 20;

/// Behind virtual tokens of `prompt`, on the model in base/.
std::shared_ptr<CausalModel> prompted_model(Config config, const PromptConfig& prompt,
                                            const test::TempDir& dir) {
  const ByteTokenizer tokenizer;
  config.lora = {};
  config.prompt_tuning = prompt;
  config.data.block_size = 40;  // and the virtual tokens, in the base's 64
  causal_architecture(config).start_from(config, dir.file("base"));
  auto model = make_causal_model(config, tokenizer.size(), 1);
  add_prompt_to_base(*model, config, tokenizer, 9, "");
  model->eval();
  export_model({config, tokenizer.size(), named(trainable_parameters(model->model_parameters()))},
               tokenizer, ExportFormat::kPeft, dir.file("adapter"));
  return model;
}

/// Inputs, logits, and the losses of ten steps of training with the first gradient's norm.
NamedTensors trained(CausalModel& model, double learning_rate = 0.05) {
  std::vector<torch::Tensor> parameters;
  for (const auto& p : trainable_parameters(model.model_parameters()))
    parameters.push_back(p.tensor);
  const auto all = test::random_tokens(3, 41, model.vocab_size(), 1);
  const auto inputs = all.narrow(1, 0, 40).contiguous(),
             targets = all.narrow(1, 1, 40).contiguous();
  NamedTensors dump = {{"prompt", parameters.front().detach().clone()},
                       {"inputs", inputs},
                       {"targets", targets},
                       {"logits", model.forward(inputs).detach()}};
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(learning_rate));
  std::vector<torch::Tensor> losses, norms;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    losses.push_back(model.loss(inputs, targets));
    losses.back().backward();
    std::vector<torch::Tensor> of_each;
    for (const auto& p : parameters) of_each.push_back(p.grad().norm());
    norms.push_back(torch::stack(of_each).norm());
    optimizer.step();
  }
  dump.emplace_back("losses", torch::stack(losses).detach());
  dump.emplace_back("norm", norms.front().reshape({1}));
  return dump;
}

}  // namespace

TEST_CASE("peft loads exported adapters of each model: equal logits, merged ones included",
          "[peer]") {
  for (const auto& [config, targets, modules] : cases()) {
    INFO(config.model << " " << targets.front());
    const test::TempDir dir;
    const auto model = adapted_model(config, dir);
    const ByteTokenizer tokenizer;
    export_model({config, tokenizer.size(), named(trainable_parameters(model->model_parameters()))},
                 tokenizer, ExportFormat::kPeft, dir.file("adapter"));
    if (!test::ask_peer(
            {"check_peft", dir.file("base"), dir.file("adapter"), dump_of(*model, dir)}))
      return;
    const auto written =
        nlohmann::json::parse(test::read_file(dir.file("adapter/adapter_config.json")));
    CHECK(written.at("target_modules") == modules);
    CHECK(written.at("fan_in_fan_out") == (config.model == "gpt" && modules.front() != "wte"));
  }
}

TEST_CASE("adapters of embeddings and the output layer, and of mixtures, learn as peft's",
          "[peer]") {
  for (Case each : cases()) {
    Config& config = each.config;
    const bool mixture = config.model == "llama" && llama_of(config).n_expert > 0;
    if (!has_tokens(each.targets) && !mixture) continue;
    INFO(config.model << " " << causal_architecture(config).describe(config));
    const test::TempDir dir;
    config.gpt.loss_chunk_size = {false, 50};
    if (config.model == "llama") llama_of(config).loss_chunk_size = {false, 50};
    const auto model = adapted_model(config, dir);
    const ByteTokenizer tokenizer;
    export_model({config, tokenizer.size(), named(trainable_parameters(model->model_parameters()))},
                 tokenizer, ExportFormat::kPeft, dir.file("adapter"));
    const NamedTensors dump = trained(*model, 0.01);
    if (!test::ask_peer({"check_lora", dir.file("base"), dir.file("adapter"), written(dump, dir),
                         dir.file("theirs")}))
      return;
    config.lora.init_from = dir.file("theirs");
    causal_architecture(config).start_from(config, dir.file("base"));
    const auto continued = make_causal_model(config, tokenizer.size(), 1);
    add_adapters_to_base(*continued, config, 4, "");
    continued->eval();
    const SafetensorsFile expected(dir.file("theirs/expected.safetensors"));
    const torch::NoGradGuard no_grad;
    CHECK(torch::allclose(continued->forward(dump[1].second),
                          test::read_tensor(expected, "logits", torch::kFloat32), 0, 1e-5));
  }
}

TEST_CASE("virtual tokens are peft's: start, logits, gradients, training, and back again",
          "[peer]") {
  for (const auto& [config, targets, modules] : cases()) {
    if ((targets.front() != "c_attn" && config.model == "gpt") || has_tokens(targets)) continue;
    INFO(config.model << " " << causal_architecture(config).describe(config));
    const test::TempDir dir;
    adapted_model(config, dir);
    const auto model = prompted_model(config, {kPrompt, "Answer shortly", ""}, dir);
    const NamedTensors dump = trained(*model);
    if (!test::ask_peer({"check_prompt", dir.file("base"), dir.file("adapter"), written(dump, dir),
                         dir.file("theirs")}))
      return;
    const auto continued = prompted_model(config, {kPrompt, "", dir.file("theirs")}, dir);
    const SafetensorsFile expected(dir.file("theirs/expected.safetensors"));
    const torch::NoGradGuard no_grad;
    CHECK(torch::allclose(continued->forward(dump[1].second),
                          test::read_tensor(expected, "logits", torch::kFloat32), 0, 1e-5));
  }
}

TEST_CASE("documents in one row see the virtual tokens, and no other document") {
  const test::TempDir dir;
  const Case first = cases().front();
  adapted_model(first.config, dir);
  const auto model = prompted_model(first.config, {kPrompt, "Answer shortly", ""}, dir);
  const torch::NoGradGuard no_grad;
  const auto tokens = test::random_tokens(1, 40, model->vocab_size(), 1);
  const auto positions = torch::cat({torch::arange(15), torch::arange(25)}).unsqueeze(0);
  const auto packed = model->forward(tokens, positions);
  const auto alone = torch::cat(
      {model->forward(tokens.narrow(1, 0, 15)), model->forward(tokens.narrow(1, 15, 25))}, 1);
  CHECK(torch::allclose(packed, alone, 0, 1e-5));
}

TEST_CASE("a cache begins with the virtual tokens, behind the padding of shorter rows") {
  const Case first = cases().front();
  const test::TempDir dir;
  adapted_model(first.config, dir);
  const auto model = prompted_model(first.config, {kPrompt, "Answer shortly", ""}, dir);
  const torch::NoGradGuard no_grad;
  const auto tokens = test::random_tokens(2, 40, model->vocab_size(), 1);
  auto cache = model->new_cache(40, torch::tensor({0, 6}, torch::kInt64));
  auto step = model->next_logits(tokens.narrow(1, 0, 30), cache);
  for (int64_t t = 30; t < 40; ++t) step = model->next_logits(tokens.narrow(1, t, 1), cache);
  CHECK(cache.length == kPrompt + 40);
  const auto whole = model->forward(tokens.narrow(0, 0, 1)).select(1, -1);
  const auto shorter = model->forward(tokens.narrow(0, 1, 1).narrow(1, 6, 34)).select(1, -1);
  CHECK(torch::allclose(step, torch::cat({whole, shorter}), 0, 1e-5));
}

TEST_CASE("adapters of parts of a layer that is one in the base's file are refused") {
  Config config = test::whole_config(test::config_of(test::llama_kind("phi3")), kPeftContext);
  config.lora = {.rank = 4, .targets = {"q_proj"}};
  const test::TempDir dir;
  const auto model = adapted_model(config, dir);
  CHECK_THROWS_WITH(export_model({config, model->vocab_size(),
                                  named(trainable_parameters(model->model_parameters()))},
                                 ByteTokenizer(), ExportFormat::kPeft, dir.file("adapter")),
                    Catch::Contains("a part of qkv_proj, one layer in transformers' phi3") &&
                        Catch::Contains("--merge"));
}

TEST_CASE("merged weights compute what the model with its adapters does") {
  for (const auto& [config, targets, modules] : cases()) {
    INFO(config.model << " " << targets.front());
    const test::TempDir dir;
    const auto model = adapted_model(config, dir);
    const torch::NoGradGuard no_grad;
    const auto merged = merged_weights(*model);
    Config untied = config;
    if (has_tokens(targets)) causal_architecture(untied).untie(untied);
    const auto plain = make_causal_model(untied, model->vocab_size(), std::nullopt);
    const auto parameters = plain->model_parameters();
    REQUIRE(merged.size() == parameters.size());
    for (std::size_t i = 0; i < merged.size(); ++i) {
      REQUIRE(merged[i].name == parameters[i].name);
      parameters[i].tensor.copy_(merged[i].tensor);
    }
    plain->eval();
    const auto inputs = test::random_tokens(3, kPeftContext, model->vocab_size(), 1);
    CHECK(torch::allclose(plain->forward(inputs), model->forward(inputs), 0, 1e-5));
  }
}

}  // namespace ddp::train
