// gpt_config.init_from: a new run begins with the weights of another one.
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;

/// A step that moves no weight.
const Words kStill = {"gpt_config.init_from=snapshot.pt", "trainer_config.snapshot_path=tuned.pt",
                      "trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30"};

Words still(const Words& more) {
  Words words = kStill;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("a new run begins with the weights, sizes and vocabulary of trainer's own snapshot") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=6"}));
  place.write("other.txt", [] {
    std::string text;
    while (text.size() < 2000) text += "the brook ran. ";  // not all characters of text.txt
    return text;
  }());
  for (const Words& more : {Words{}, Words{"data_config.path=other.txt"}}) {
    std::filesystem::remove(place / "tuned.pt");
    succeed(alone(place, still(more)));
    CHECK(largest_parameter_distance(place.snapshot(), place / "tuned.pt") == 0.0);
  }
  succeed(alone(place, still({"data_config.path=other.txt", "trainer_config.max_steps=2"})));
}

TEST_CASE("the recipe for fine-tuning takes a snapshot as well, and goes on from its own") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=6"}));
  for (const char* steps : {"2", "4"}) {
    succeed(trainer(
        place,
        {"--config", DDP_SOURCE_DIR "/configs/finetune.yaml", "init_from=snapshot.pt",
         "data_config.path=text.txt", "data_config.block_size=32", "data_config.stride=32",
         "optimizer_config.warmup_steps=0", std::string("trainer_config.max_steps=") + steps}));
  }
}

void check_refused(const Finished& run, const std::string& said) {
  INFO(run.err);
  CHECK(run.exit == 2);
  CHECK(lines_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains(said));
}

TEST_CASE("a folder of transformers generates and is exported as the snapshot that it came from") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=6"}));
  const auto text_of = [&place](const std::string& model) {
    return succeed(trainer(place, {"generate", "--snapshot", model, "--prompt", "the old",
                                   "--max_new_tokens", "50", "--seed", "3"}))
        .out;
  };
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "first"}));
  CHECK(text_of("first") == text_of("snapshot.pt"));
  place.write("first/generation_config.json",
              R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 1.0})");
  const Words words = {"generate", "--snapshot", "first", "--prompt", "the", "--max_new_tokens=1"};
  CHECK_THAT(succeed(trainer(place, words)).err, Contains(" --temperature 0.6 --top_k 20\n"));
  CHECK_THAT(succeed(trainer(place, joined(words, {"--greedy"}))).err, !Contains("--top_k"));
  const auto metrics_of = [&place](const std::string& model) {
    auto report =
        nlohmann::json::parse(succeed(trainer(place, {"eval", "--snapshot", model, "--data",
                                                      "text.txt", "--batch_size", "4", "--json"}))
                                  .out);
    for (const char* key : {"snapshot", "step"}) report.erase(key);
    return report;
  };
  CHECK(metrics_of("first") == metrics_of("snapshot.pt"));
  CHECK(metrics_of("first").contains("perplexity"));
  succeed(trainer(place, {"export", "--snapshot", "first", "--output", "second"}));
  for (const char* file : {"model.safetensors", "tokenizer.json"})
    CHECK(read_bytes(place / ("first/" + std::string(file))) ==
          read_bytes(place / ("second/" + std::string(file))));
  place.write("first/config.json", R"({"model_type": "opt"})");
  check_refused(finish(trainer(place, {"generate", "--snapshot", "first", "--prompt", "the"})),
                "first/config.json: model_type is 'opt'; this trainer reads bert, roberta, "
                "distilbert, gpt2, llama, qwen2, qwen3, "
                "mistral, phi3, gemma2, gemma3_text, mixtral, qwen3_moe");
}

}  // namespace
}  // namespace ddp::test
