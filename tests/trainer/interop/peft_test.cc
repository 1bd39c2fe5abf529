// Adapters as peft and transformers see them.
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/interop/export_model.h"
#include "trainer/model/blocks/adaptable_linear.h"
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
      {gpt_config(), {"h.1.mlp.*"}, {"transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"}}};
  for (const auto& [name, shape] : test::llama_kinds()) {
    all.push_back({test::whole_config(test::config_of(shape), kPeftContext),
                   {"[qv]_proj", "mlp.down*"},
                   {"down_proj", "q_proj", "v_proj"}});
  }
  for (Case& each : all) {
    each.config.lora = {.rank = 4, .alpha = 10.0, .dropout = 0.1, .targets = each.targets};
    each.config.optimizer.weight_decay = 0.0;
  }
  return all;
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
  export_model({config, tokenizer.size(), named(trainable_parameters(*model))}, tokenizer,
               ExportFormat::kHuggingFace, dir.file("base"));
  add_adapters(*model, config.lora, 9);
  for (const auto& p : trainable_parameters(*model)) {
    if (p.name.ends_with("lora_B.weight"))
      p.tensor.add_(torch::randn(p.tensor.sizes(), generator, torch::kFloat32), 0.05);
  }
  model->eval();
  return model;
}

std::string dump_of(CausalModel& model, const test::TempDir& dir) {
  const torch::NoGradGuard no_grad;
  const auto inputs = test::random_tokens(3, kPeftContext, model.vocab_size(), 1);
  const NamedTensors dump = {{"inputs", inputs}, {"logits", model.forward(inputs)}};
  StateBuffer buffer(dump);
  buffer.copy_from(dump, nullptr);
  publish_safetensors(dir.file("dump.safetensors"), "", {}, buffer.tensors());
  return dir.file("dump.safetensors");
}

}  // namespace

TEST_CASE("peft loads exported adapters of each model: equal logits, merged ones included",
          "[peer]") {
  for (const auto& [config, targets, modules] : cases()) {
    INFO(config.model << " " << targets.front());
    const test::TempDir dir;
    const auto model = adapted_model(config, dir);
    const ByteTokenizer tokenizer;
    export_model({config, tokenizer.size(), named(trainable_parameters(*model))}, tokenizer,
                 ExportFormat::kPeft, dir.file("adapter"));
    if (!test::ask_peer(
            {"check_peft", dir.file("base"), dir.file("adapter"), dump_of(*model, dir)}))
      return;
    const auto written =
        nlohmann::json::parse(test::read_file(dir.file("adapter/adapter_config.json")));
    CHECK(written.at("target_modules") == modules);
    CHECK(written.at("fan_in_fan_out") == (config.model == "gpt"));
  }
}

TEST_CASE("merged weights compute what the model with its adapters does") {
  for (const auto& [config, targets, modules] : cases()) {
    INFO(config.model << " " << targets.front());
    const test::TempDir dir;
    const auto model = adapted_model(config, dir);
    const torch::NoGradGuard no_grad;
    const auto plain = make_causal_model(config, model->vocab_size(), std::nullopt);
    const auto merged = merged_weights(*model);
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
