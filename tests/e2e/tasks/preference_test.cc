// task=preference: the numbers of TRL, resume and ranks, forms of the data, use of the model.
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

/// With what preference_data.py writes.
struct PreferencePlace : Workspace {
  PreferencePlace() {
    write("config.yaml",
          tiny_config("task: preference\nmodel: gpt\ngpt_config: {init_from: start}\n"
                      "data_config: {path: explicit.jsonl, train_split: 1, block_size: 78}\n",
                      10, 4, 1, "0.005"));
    ChildOptions made = trainer(*this, {});
    made.argv = {"python3", std::string(DDP_SOURCE_DIR) + "/tests/e2e/tasks/preference_data.py",
                 path()};
    succeed(made);
  }
};

const Words kWithEvaluation = {"data_config.eval_path=eval.jsonl"};

std::vector<Json> training_records(const Workspace& place) {
  std::vector<Json> records;
  for (const auto& line : lines_of(read_bytes(place / "metrics.jsonl"))) {
    Json record = Json::parse(line);
    if (record.at("split") == "train") records.push_back(std::move(record));
  }
  return records;
}

/// Each step sees all eight pairs.
void check_as_trl(const std::string& name, const Words& keys) {
  INFO(name);
  constexpr double kMargin = 1e-4;
  const PreferencePlace place;
  succeed(alone(place, joined(keys, {"optimizer_config.weight_decay=0"})));
  const auto file = std::string(DDP_SOURCE_DIR) + "/tests/e2e/tasks/preference.golden";
  const Json golden = Json::parse(read_bytes(file)).at(name);
  const auto records = training_records(place);
  REQUIRE(records.size() == golden.at("loss").size());
  for (const auto& [key, values] : golden.items()) {
    for (std::size_t step = 0; step < records.size(); ++step) {
      // Before the first update all rewards but orpo's are 0: the larger one is a matter of
      // rounding.
      if (step == 0 && key == "rewards/accuracies") continue;
      INFO(key << " of step " << step + 1);
      const double theirs = values[step], ours = records[step].at(key);
      CHECK(std::abs(ours - theirs) <= kMargin);
    }
  }
}

const Words kOrpo = {"preference_config.loss_type=orpo"};  // without a reference

void check_exact_pairs(const Words& keys) {
  check_exact<PreferencePlace>(joined(kWithEvaluation, keys), 8, {"zero2"});
}

std::string pair_refusal(const ChildOptions& command) {
  const auto run = finish(command);
  INFO(run.err);
  CHECK(run.exit == 2);
  REQUIRE(errors_of(run.err).size() == 1);
  return errors_of(run.err).front();
}

}  // namespace

TEST_CASE("ten steps of each preference loss report TRL's losses, rewards and log-probabilities") {
  const Words accumulated = {"trainer_config.grad_accumulation_steps=2"};
  const Words at_once = {"trainer_config.batch_size=8"};
  check_as_trl("sigmoid", accumulated);
  check_as_trl("texts",
               joined(at_once, {"data_config.path=texts.jsonl", "preference_config.beta=0.5"}));
  check_as_trl("smoothing", joined(accumulated, {"preference_config.label_smoothing=0.2"}));
  const Words implicit = {"data_config.path=implicit.jsonl"};
  check_as_trl("robust",
               joined(joined(accumulated, implicit), {"preference_config.loss_type=robust",
                                                      "preference_config.label_smoothing=0.1"}));
  check_as_trl("ipo", joined(joined(accumulated, implicit), {"preference_config.loss_type=ipo"}));
  check_as_trl("orpo", joined(at_once, {"data_config.path=texts.jsonl",
                                        "preference_config.loss_type=orpo"}));
}

TEST_CASE("pairs resume bit for bit after a kill, and two ranks are one process") {
  check_exact_pairs({});
}

TEST_CASE("pairs train adapters bit for bit after a kill and on two ranks") {
  check_exact_pairs({"lora.rank=4", "lora.targets=all-linear"});
}

TEST_CASE("orpo resumes and is divided as losses with a reference are", "[long]") {
  check_exact_pairs(kOrpo);
}

TEST_CASE("zero3 computes the reference of divided weights, and ranks may have no part of it") {
  const PreferencePlace one, four;
  const auto whole =
      succeed(alone(one, joined(kWithEvaluation, {"trainer_config.batch_size=2",
                                                  "trainer_config.grad_accumulation_steps=4"})));
  const auto divided =
      succeed(launched(four, 4,
                       joined(kWithEvaluation, {"trainer_config.batch_size=2",
                                                "distributed_config.strategy=zero3"})));
  CHECK(differences(one.snapshot(), four.snapshot()) == Words{});
  CHECK(evaluations_of(whole.out) == evaluations_of(divided.out));
}

TEST_CASE("a prompt that both conversations begin with is the prompt that is written apart") {
  const PreferencePlace apart, shared;
  succeed(alone(apart));
  succeed(alone(shared, {"data_config.path=implicit.jsonl"}));
  CHECK(differences(apart.snapshot(), shared.snapshot()) == Words{});
  const Words show = {"data", "show", "--config", "config.yaml", "--rows", "2"};
  const auto shown = succeed(trainer(apart, show)).out;
  CHECK_THAT(shown, Contains("--- chosen: 26 tokens, 10 in the loss") &&
                        Contains("--- rejected: 23 tokens, 7 in the loss"));
  CHECK_THAT(shown, Contains("2 answers truncated to data_config.block_size + 1 = 79 tokens"));
}

TEST_CASE("a model learned from pairs is evaluated, exported and starts another run") {
  const PreferencePlace place;
  const auto run = succeed(alone(place, kWithEvaluation));
  const Json report =
      Json::parse(succeed(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--json"})).out);
  CHECK_THAT(evaluations_of(run.out).back(),
             Contains(std::to_string(report.at("loss").get<double>())));
  CHECK(report.contains("rewards/margins"));
  succeed(alone(place, joined(kWithEvaluation, {"trainer_config.max_steps=11"})));
  CHECK_THAT(log_of(place), Contains("reference: as the snapshot has it"));
  const Words talk = {"--prompt", "What is 2 + 3?", "--chat", "--greedy", "--max_new_tokens", "8"};
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "tuned"}));
  CHECK(succeed(trainer(place, joined({"generate", "--snapshot", "tuned"}, talk))).out ==
        succeed(trainer(place, joined({"generate", "--snapshot", "snapshot.pt"}, talk))).out);
  succeed(alone(place, {"gpt_config.init_from=snapshot.pt", "trainer_config.max_steps=1",
                        "trainer_config.snapshot_path=next.pt"}));
}

TEST_CASE("equal runs in different folders have the same content") {
  const PreferencePlace one, two;
  for (const auto* place : {&one, &two}) succeed(alone(*place, {"trainer_config.max_steps=2"}));
  CHECK(content_sha256(one) == content_sha256(two));
}

TEST_CASE("pairs that cannot be used are refused in one line, or left out") {
  const PreferencePlace place;
  const auto rows = read_bytes(place / "explicit.jsonl");
  place.write("bad.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\"}\n" + rows);
  const Words bad = {"data_config.path=bad.jsonl"};
  CHECK_THAT(pair_refusal(alone(place, bad)),
             Contains("bad.jsonl:1: 'rejected' is missing") && Contains("on_bad_sample=skip"));
  const auto run = succeed(alone(place, joined(bad, {"data_config.on_bad_sample=skip"})));
  CHECK_THAT(run.out, Contains("Left out: 1 unusable pair left out; the first: ") &&
                          Contains("bad.jsonl: 8 pairs"));
  CHECK_THAT(pair_refusal(alone(place, {"preference_config.loss_type=ipo",
                                        "preference_config.label_smoothing=0.1"})),
             Contains("preference_config.label_smoothing"));
  CHECK_THAT(
      pair_refusal(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", "eval.jsonl"})),
      Contains("the snapshot has no reference log-probabilities of the evaluation pairs"));
}

TEST_CASE("layers of a preference run are not divided, in one line") {
  const PreferencePlace place;
  const auto run = finish(launched(place, 2, {"distributed_config.tensor=2"}));
  CHECK(run.exit == 2);
  CHECK_THAT(run.err, Contains("distributed_config.tensor divides a causal language model"));
}

TEST_CASE("plan and estimate of a preference run need no pairs") {
  const PreferencePlace place;
  const auto estimated = [&place](const Words& more) {
    return Json::parse(
        succeed(trainer(place, joined({"estimate", "--config", "config.yaml", "--json"}, more)))
            .out);
  };
  const Json with_pairs = estimated({});
  std::filesystem::remove(place / "explicit.jsonl");
  const Json without = estimated({});
  CHECK(without["parameters"] == with_pairs["parameters"]);
  for (const char* kind : {"activations", "logits"})
    CHECK(without["memory_per_rank_bytes"][kind] == with_pairs["memory_per_rank_bytes"][kind]);
  CHECK(without["tokens_per_step"] == 4 * 2 * 78);  // at most
  CHECK(estimated({"--vocab_size", "1000"})["parameters"]["token_embedding"] == 1000 * 16);
  const Words plan = {"plan", "--config", "config.yaml", "--gpus", "2", "--memory", "80", "--json"};
  const Json report = Json::parse(succeed(trainer(place, plan)).out);
  REQUIRE(report["plans"].size() == 4);  // the strategies; layers are not divided
  for (const Json& each : report["plans"]) CHECK((each["tensor"] == 1 && each["pipeline"] == 1));
}

}  // namespace ddp::test
