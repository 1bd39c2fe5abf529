// A second causal model through every mode of trainer: bigram_model.cc is linked with trainer's
// main(), and no file of the product knows of it.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

const std::string kBigram = "model: bigram\nbigram_config: {width: 8}\n";

/// The same program with bigram_model.cc.
ChildOptions with_bigram(ChildOptions options) {
  for (std::string& word : options.argv) {
    if (word == trainer_program()) word = DDP_BIGRAM_TRAINER;
  }
  return options;
}

struct BigramPlace : Workspace {
  BigramPlace() { write("config.yaml", tiny_text_config(kBigram, "0.1")); }

  Finished run(const Words& overrides = {}) const {
    return succeed(with_bigram(alone(*this, overrides)));
  }
  Finished mode(const Words& arguments) const {
    return succeed(with_bigram(trainer(*this, arguments)));
  }
  std::string refused(const Words& arguments) const {
    const auto run = finish(with_bigram(trainer(*this, arguments)));
    CHECK(run.exit != 0);
    REQUIRE(errors_of(run.err).size() == 1);
    return errors_of(run.err).front();
  }
};

}  // namespace

TEST_CASE("a second model trains, generates, is evaluated, estimated and exported") {
  const BigramPlace place;
  const auto trained = place.run({"trainer_config.sample_every_steps=10"});
  CHECK_THAT(trained.out, Contains("Model: bigram of width 8; number of parameters: "));
  CHECK_THAT(trained.out, Contains("Step 20 | Sample:"));

  const auto eval = Json::parse(place.mode({"eval", "--snapshot", "snapshot.pt", "--json"}).out);
  CHECK(eval.at("loss") < 2.6);  // of 20 characters, most follow from the one before
  CHECK(eval.at("accuracy") > 0.25);

  const std::string text = place
                               .mode({"generate", "--snapshot", "snapshot.pt", "--prompt", "the ",
                                      "--greedy", "--max_new_tokens", "60"})
                               .out;
  REQUIRE(text.size() == 64);
  std::map<char, char> next;
  for (std::size_t i = 3; i + 1 < text.size(); ++i)
    CHECK(next.try_emplace(text[i], text[i + 1]).first->second == text[i + 1]);

  const auto estimate =
      Json::parse(place.mode({"estimate", "--config", "config.yaml", "--json"}).out);
  const int64_t parameters = estimate.at("parameters").at("total");
  CHECK(parameters == 2 * estimate.at("parameters").at("head").get<int64_t>());
  CHECK(estimate.at("flops_per_step") == 4.0 * 32 * 6 * static_cast<double>(parameters) / 2);
  CHECK_THAT(place.mode({"estimate", "--config", "config.yaml"}).out,
             Contains("6 for each weight of the head"));

  const auto inspected = Json::parse(place.mode({"inspect", "snapshot.pt", "--json"}).out);
  CHECK(inspected.at("parameters") == parameters);
  CHECK(inspected.at("config").at("model") == "bigram");
  CHECK_FALSE(inspected.at("config").contains("gpt_config"));

  place.mode({"export", "--snapshot", "snapshot.pt", "--format", "safetensors", "--output", "out"});
  const train::SafetensorsFile weights(place / "out/model.safetensors");
  CHECK(weights.tensors().size() == 2);
  CHECK(weights.find("head.weight") != nullptr);
  CHECK_THAT(
      place.refused({"export", "--snapshot", "snapshot.pt", "--output", "hf"}),
      Contains("transformers has no model like 'bigram'; use --format torch or safetensors"));
}

TEST_CASE("a second model resumes bit for bit, and two ranks follow the launcher") {
  const BigramPlace whole, parted, pair;
  whole.run();
  parted.run({"trainer_config.max_steps=7"});
  parted.run();
  CHECK(differences(whole.snapshot(), parted.snapshot()) == Words{});
  const auto ranks = succeed(with_bigram(launched(pair, 2)));
  CHECK(steps_of(ranks.out).size() == 20);
}

TEST_CASE("a model and its keys are refused where they do not belong") {
  const BigramPlace place;
  const Words config = {"--config", "config.yaml"};
  const auto with = [&config](const Words& more) {
    Words words = config;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  CHECK_THAT(place.refused(with({"gpt_config.n_layer=2"})),
             Contains("gpt_config.n_layer=2: does not apply to model=bigram; remove it, or set "
                      "model=gpt"));
  CHECK_THAT(place.refused(with({"model=bigramm"})), Contains("bigram_config.width"));
  place.run({"trainer_config.max_steps=5"});
  place.write("gpt.yaml",
              "gpt_config: {n_layer: 1, n_head: 1, n_embd: 8}\n"
              "data_config: {path: text.txt, block_size: 32, stride: 32}\n"
              "trainer_config: {batch_size: 4, snapshot_path: snapshot.pt}\n"
              "hydra: {run: {dir: .}}\n");
  CHECK_THAT(
      place.refused({"--config", "gpt.yaml"}),
      Contains("belongs to another model: model is bigram there, gpt in this configuration"));
  // Without the model's file the snapshot is of no use.
  const auto plain = finish(trainer(place, {"eval", "--snapshot", "snapshot.pt"}));
  REQUIRE(errors_of(plain.err).size() == 1);
  CHECK_THAT(errors_of(plain.err).front(), Contains("bigram_config.width: unknown key"));
  place.write("unknown.yaml",
              "model: llamma\ndata_config: {path: text.txt}\nhydra: {run: {dir: .}}\n");
  const auto unknown = finish(trainer(place, {"--config", "unknown.yaml"}));
  CHECK_THAT(unknown.err, Contains("model: 'llamma' is not one of gpt, llama; "));
}

}  // namespace ddp::test
