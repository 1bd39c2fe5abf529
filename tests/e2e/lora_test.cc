// lora: adapters on a frozen pretrained model, through every mode of trainer.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

/// The base is in base.pt.
const std::string kGptAdapters = "model: gpt\ngpt_config: {init_from: base.pt}\n";
const std::string kLlamaAdapters = "model: llama\nllama_config: {init_from: base.pt}\n";
const Words kWithoutLora = {"~lora", "trainer_config.snapshot_path=base.pt",
                            "trainer_config.max_steps=6"};

struct LoraPlace : Workspace {
  explicit LoraPlace(const std::string& model) : gpt(model.starts_with("model: gpt")) {
    write("config.yaml", tiny_text_config(model, "0.01") + "lora: {rank: 4, dropout: 0.1}\n");
    Words base = kWithoutLora;
    const std::string section = gpt ? "gpt_config" : "llama_config";
    for (const char* size : {".init_from=null", ".n_layer=2", ".n_head=2", ".n_embd=32"})
      base.push_back(section + size);
    succeed(alone(*this, base));
  }

  std::string greedy(const std::string& model) const {
    return succeed(trainer(*this, {"generate", "--snapshot", model, "--prompt", "the ", "--greedy",
                                   "--max_new_tokens", "50"}))
        .out;
  }
  double loss(const std::string& snapshot) const {
    const auto report = succeed(trainer(*this, {"eval", "--snapshot", snapshot, "--json"}));
    return Json::parse(report.out).at("loss");
  }

  bool gpt;
};

Words and_also(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void check_saved_adapters(const std::string& model) {
  INFO(model);
  const LoraPlace whole(model), killed(model);
  const auto trained = succeed(alone(whole));
  CHECK_THAT(trained.out, Contains("LoRA: rank 4, alpha 16, dropout 0.1 on " +
                                   std::string(whole.gpt ? "2" : "4") + " layers"));
  const auto job = succeed(launched(
      killed, 1, {R"(trainer_config.fault_plan=["rank=0 step=13 phase=backward kind=kill"])"},
      {"--max_restarts=1"}));
  CHECK_THAT(job.err, Contains("FAULT INJECTION: kill"));
  CHECK(differences(whole.snapshot(), killed.snapshot()) == Words{});
  const int64_t adapted = whole.gpt ? 2 * (4 * 32 + 96 * 4) : 2 * 2 * (4 * 32 + 32 * 4);
  CHECK(inspect(whole, "snapshot.pt").at("parameters") == adapted);
  CHECK(std::filesystem::file_size(whole.snapshot()) <
        std::filesystem::file_size(whole / "base.pt") / 3);
}

void check_adapters_of_ranks(const std::string& model) {
  INFO(model);
  const LoraPlace one(model), two(model), sharded(model);
  const Words averaged = {"trainer_config.ema_decay=0.9"};
  succeed(alone(one, and_also(averaged, {"trainer_config.grad_accumulation_steps=2"})));
  succeed(launched(two, 2, averaged));
  succeed(launched(sharded, 2, and_also(averaged, {"distributed_config.strategy=zero1"})));
  CHECK(differences(one.snapshot(), two.snapshot()) == Words{});
  CHECK(differences(one.snapshot(), sharded.snapshot()) == Words{});
}

void check_tuned_adapters(const std::string& model) {
  INFO(model);
  const LoraPlace plain(model), checkpointed(model);
  const std::string section = plain.gpt ? "gpt_config" : "llama_config";
  const Words tuned = {"lora.targets=['*']", "optimizer_config.name=muon",
                       "optimizer_config.param_groups=[{pattern: '*.lora_B.*', lr_mult: 4}]",
                       "trainer_config.max_steps=6"};
  succeed(alone(plain, tuned));
  succeed(alone(checkpointed, and_also(tuned, {section + ".activation_checkpointing=true"})));
  CHECK(differences(plain.snapshot(), checkpointed.snapshot()) == Words{});
}

void check_exported_adapters(const std::string& model) {
  INFO(model);
  const LoraPlace place(model);
  const auto trained = succeed(alone(place));
  CHECK_THAT(evaluations_of(trained.out).back(),
             Contains(std::to_string(place.loss("snapshot.pt"))));
  CHECK(place.loss("snapshot.pt") != place.loss("base.pt"));
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge"}));
  CHECK(place.greedy("merged") == place.greedy("snapshot.pt"));
  CHECK(place.greedy("merged") != place.greedy("base.pt"));
  succeed(trainer(
      place, {"export", "--snapshot", "snapshot.pt", "--output", "adapter", "--format", "peft"}));
  const auto config = Json::parse(read_bytes(place / "adapter/adapter_config.json"));
  CHECK(config.at("base_model_name_or_path") == place / "base.pt");
  CHECK(config.at("r") == 4);
  const auto estimate =
      Json::parse(succeed(trainer(place, {"estimate", "--config", "config.yaml", "--json"})).out);
  CHECK(inspect(place, "snapshot.pt").at("parameters") == estimate.at("parameters").at("adapters"));
  const auto& memory = estimate.at("memory_per_rank_bytes");
  const int64_t adapters = estimate.at("parameters").at("adapters");
  CHECK(memory.at("weights") == 4 * estimate.at("parameters").at("total").get<int64_t>());
  CHECK(memory.at("gradients") == 4 * adapters);
  CHECK(memory.at("optimizer") == 8 * adapters);
  CHECK(memory.at("snapshot_copy") == 12 * adapters);
}

}  // namespace

TEST_CASE("a run with adapters saves these alone, and resumes bit for bit after a kill") {
  check_saved_adapters(kGptAdapters);
}

TEST_CASE("two ranks, and two that shard, train adapters bit for bit as one process does") {
  check_adapters_of_ranks(kLlamaAdapters);
}

TEST_CASE("checkpointed blocks, groups and Muon train adapters, too") {
  check_tuned_adapters(kGptAdapters);
}

TEST_CASE("adapters are evaluated, merged and exported with the model that they belong to") {
  check_exported_adapters(kLlamaAdapters);
}

TEST_CASE("adapters of the other model are trained, resumed and exported, too", "[long]") {
  check_saved_adapters(kLlamaAdapters);
  check_adapters_of_ranks(kGptAdapters);
  check_tuned_adapters(kLlamaAdapters);
  check_exported_adapters(kGptAdapters);
}

}  // namespace ddp::test
