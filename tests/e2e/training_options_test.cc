// Optimizers, schedules, averaged weights, frozen layers, early stopping: each resumes bit for bit
// after a kill.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kKillAtStep25 = {
    "trainer_config.fault_plan=[\"rank=1 step=25 phase=backward kind=kill\"]"};

/// Name and SHA-256 of each tensor of the place's snapshot.
std::map<std::string, std::string> tensor_sums(const Workspace& place) {
  std::map<std::string, std::string> sums;
  const auto report = inspect(place, place.snapshot());
  for (const auto& tensor : report["tensors"])
    sums[tensor["name"].get<std::string>()] = tensor["sha256"].get<std::string>();
  return sums;
}

/// The tensors of the snapshot whose names begin with `prefix`.
std::set<std::string> tensors_with(const Workspace& place, const std::string& prefix) {
  std::set<std::string> names;
  for (const auto& [name, sum] : tensor_sums(place)) {
    if (name.starts_with(prefix)) names.insert(name);
  }
  return names;
}

void killed_ends_as_unbroken(const Words& options) {
  const Workspace unbroken;
  succeed(launched(unbroken, 2, options));
  const Workspace killed;
  const auto run =
      succeed(launched(killed, 2, joined(options, kKillAtStep25), {"--max_restarts=2"}));
  CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
  CHECK(differences(unbroken.snapshot(), killed.snapshot()) == Words{});
}

}  // namespace

TEST_CASE("every optimizer with a schedule ends after a kill as without one", "[long]") {
  for (const auto& options : {
           Words{"optimizer_config.name=adam", "optimizer_config.lr_schedule=cosine",
                 "optimizer_config.warmup_steps=5"},
           Words{"optimizer_config.name=sgd", "optimizer_config.momentum=0.9",
                 "optimizer_config.lr_schedule=one_cycle"},
           Words{"optimizer_config.name=muon", "optimizer_config.lr_schedule=wsd"},
       }) {
    INFO(options.front());
    killed_ends_as_unbroken(options);
  }
}

TEST_CASE("averaged weights and frozen layers come back from a kill, too", "[long]") {
  killed_ends_as_unbroken({"trainer_config.ema_decay=0.9",
                           "trainer_config.freeze=[\"transformer.h.0.*\"]",
                           "optimizer_config.lr_schedule=linear"});
}

TEST_CASE("groups of parameters and a frozen embedding come back from a kill bit for bit") {
  killed_ends_as_unbroken(
      {"optimizer_config.name=muon", "trainer_config.ema_decay=0.9",
       "optimizer_config.lr_schedule=linear",
       "optimizer_config.param_groups=[{pattern: 'transformer.wte.*', frozen: true}, "
       "{pattern: 'transformer.h.0.ln*', lr_mult: 0.1, weight_decay: 0.5}, "
       "{pattern: '*.mlp.c_fc.weight', optimizer: adamw, lr_mult: 2}]"});
}

TEST_CASE("groups may change when a run resumes: state that is missing starts at 0, in one line") {
  const Workspace place;
  const Words muon = {"optimizer_config.name=muon", "trainer_config.ema_decay=0.5"};
  const auto first =
      succeed(alone(place, joined(muon, {"trainer_config.freeze=[\"transformer.w?e.*\"]",
                                         "trainer_config.max_steps=3"})));
  CHECK_THAT(first.out, Contains("Parameter groups: tensors") &&
                            Contains("frozen                            transformer.w?e.*") &&
                            Contains("hidden matrices"));
  const auto before = tensor_sums(place);
  // Steps too small to change a weight: what is trained again has an average that starts as it.
  const auto again = succeed(
      alone(place, joined(muon, {"optimizer_config.learning_rate=1e-30",
                                 "optimizer_config.param_groups=[{pattern: '*.c_fc.weight', "
                                 "optimizer: adamw}]",
                                 "trainer_config.max_steps=5"})));
  CHECK_THAT(again.out,
             Contains("Changed since the snapshot: optimizer_config.param_groups [] -> [{") &&
                 Contains("The snapshot has no optimizer state for") &&
                 Contains("such as transformer.h.0.mlp.c_fc.weight: it starts at 0"));
  const auto after = tensor_sums(place);
  CHECK(after.at("model.transformer.wte.weight") == before.at("model.transformer.wte.weight"));
  CHECK(after.at("ema.transformer.wte.weight") == after.at("model.transformer.wte.weight"));
  CHECK(tensors_with(place, "optimizer.transformer.h.0.mlp.c_fc.weight") ==
        std::set<std::string>{"optimizer.transformer.h.0.mlp.c_fc.weight.exp_avg",
                              "optimizer.transformer.h.0.mlp.c_fc.weight.exp_avg_sq"});
}

TEST_CASE(
    "frozen parameters keep their values and have no state, and averages are in the snapshot") {
  const Workspace place;
  const Words frozen = {"trainer_config.freeze=[\"transformer.w?e.*\"]",
                        "trainer_config.ema_decay=0.5"};
  succeed(alone(place, joined(frozen, {"trainer_config.max_steps=1"})));
  const auto before = tensor_sums(place);
  succeed(alone(place, joined(frozen, {"trainer_config.max_steps=4"})));
  const auto after = tensor_sums(place);
  CHECK(before.at("model.transformer.wte.weight") == after.at("model.transformer.wte.weight"));
  CHECK(before.at("model.transformer.ln_f.weight") != after.at("model.transformer.ln_f.weight"));
  CHECK(tensors_with(place, "optimizer.transformer.wte").empty());
  CHECK(after.at("ema.transformer.ln_f.weight") != after.at("model.transformer.ln_f.weight"));
  // Layers that are trained again begin without a past.
  succeed(alone(place, {"trainer_config.max_steps=6"}));
  CHECK(tensors_with(place, "optimizer.transformer.wte").size() == 2);
}

TEST_CASE("early stopping ends the run, and says so when it is started again") {
  const Workspace place;
  const Words options = {"trainer_config.early_stopping_patience=2",
                         "trainer_config.early_stopping_min_delta=100",
                         "trainer_config.eval_every_steps=2"};
  const auto run = succeed(launched(place, 2, options));
  CHECK_THAT(run.out, Contains("Training stopped early: 6 steps") &&
                          Contains("the loss of 2 evaluations in a row was not better by more "
                                   "than 100 "));
  const auto again = succeed(launched(place, 2, options));
  CHECK_THAT(again.out, Contains("early stopping ended the run: 2 evaluations without progress"));
  const auto further =
      succeed(launched(place, 2, joined(options, {"trainer_config.early_stopping_patience=4"})));
  CHECK_THAT(further.out, Contains("Training stopped early: 4 steps (10 in all)"));
}

TEST_CASE("the best evaluation is saved, and the run ends with it") {
  const Workspace place;
  // Too large a rate: the loss rises after the first evaluations.
  const auto run = succeed(alone(
      place, {"trainer_config.load_best_model_at_end=true", "trainer_config.eval_every_steps=2",
              "optimizer_config.learning_rate=0.5", "trainer_config.grad_norm_clip=0",
              "trainer_config.metric_for_best_model=accuracy", "trainer_config.max_steps=12"}));
  const auto at = run.out.find("Best snapshot: ");
  REQUIRE(at != std::string::npos);
  const std::string path = run.out.substr(at + 15, run.out.find(' ', at + 15) - at - 15);
  CHECK_THAT(run.out, Contains("Next: trainer generate --snapshot " + path + " --prompt"));
}

TEST_CASE("a resume on other evaluation data looks for the best evaluation anew") {
  const Workspace place;
  const Words options = {"trainer_config.load_best_model_at_end=true",
                         "trainer_config.eval_every_steps=2"};
  succeed(alone(place,
                joined(options, {"data_config.eval_path=text.txt", "trainer_config.max_steps=8"})));
  // The rarest characters: the loss is far above that of the text, and rises.
  std::string rare;
  while (rare.size() < 400) rare += "\u00e4";
  place.write("rare.txt", rare);
  const auto run = succeed(alone(
      place, joined(options, {"data_config.eval_path=rare.txt", "trainer_config.max_steps=12"})));
  CHECK_THAT(run.out, Contains("the best model is judged anew"));
  const auto at = run.out.find("Best snapshot: ");
  REQUIRE(at != std::string::npos);
  const auto step_at = run.out.find("(step ", at);
  CHECK(std::stoi(run.out.substr(step_at + 6)) > 8);
}

TEST_CASE("embeddings are decayed where the configuration asks for it") {
  const Workspace plain, decayed;
  const Words one_step = {"trainer_config.max_steps=1", "optimizer_config.weight_decay=0.5"};
  succeed(alone(plain, one_step));
  succeed(alone(decayed, joined(one_step, {"optimizer_config.decay_embeddings=true"})));
  const auto sums = tensor_sums(plain);
  std::set<std::string> different;
  for (const auto& [name, sum] : tensor_sums(decayed)) {
    if (sum != sums.at(name)) different.insert(name);
  }
  CHECK(different ==
        std::set<std::string>{"model.transformer.wpe.weight", "model.transformer.wte.weight"});
}

TEST_CASE("momentum may be switched on when a run resumes: it begins at 0") {
  const Workspace place;
  const Words sgd = {"optimizer_config.name=sgd", "optimizer_config.learning_rate=0.1"};
  succeed(alone(place, joined(sgd, {"trainer_config.max_steps=5"})));
  CHECK(tensors_with(place, "optimizer.").empty());
  const auto run = succeed(
      alone(place, joined(sgd, {"optimizer_config.momentum=0.9", "trainer_config.max_steps=10"})));
  CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
  CHECK(order_of_steps(run.out) == range_of(6, 10));
  CHECK_FALSE(tensors_with(place, "optimizer.").empty());
}

TEST_CASE("a schedule ends with the run, also of one that resumes with larger batches") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=10"}));
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=null", "trainer_config.max_epochs=2",
                            "trainer_config.batch_size=8", "optimizer_config.lr_schedule=linear"}));
  const int last = order_of_steps(run.out).back();
  CHECK_THAT(run.out, Contains("| " + std::to_string(last) + "/" + std::to_string(last) + ","));
  // All but one of the steps are behind it: 0.003 / last.
  std::string line = run.out.substr(run.out.find("| Step " + std::to_string(last) + " | Train"));
  const double rate = std::stod(line.substr(line.find("| lr ") + 5));
  CHECK(rate == Approx(0.003 / last).epsilon(1e-3));
}

TEST_CASE("an evaluation of few batches sees fewer tokens, the same ones on any number of ranks") {
  const Workspace one;
  const Workspace two;
  const Words options = {"trainer_config.eval_iters=2", "trainer_config.max_steps=2"};
  const auto alone_run =
      succeed(alone(one, joined(options, {"trainer_config.grad_accumulation_steps=2"})));
  const auto two_ranks = succeed(launched(two, 2, options));
  const Workspace all;
  const auto whole = succeed(launched(all, 2, {"trainer_config.max_steps=2"}));
  REQUIRE(evaluations_of(alone_run.out).size() == 1);
  CHECK(evaluations_of(alone_run.out) == evaluations_of(two_ranks.out));
  CHECK(evaluations_of(whole.out) != evaluations_of(two_ranks.out));
}

TEST_CASE("checkpointed blocks and deterministic algorithms end in the same bits on two ranks") {
  const Words options = {"trainer_config.max_steps=8", "trainer_config.grad_accumulation_steps=2"};
  const Workspace plain;
  succeed(launched(plain, 2, options));
  for (const char* further :
       {"gpt_config.activation_checkpointing=true", "trainer_config.deterministic=true"}) {
    INFO(further);
    const Workspace place;
    const auto run = succeed(launched(place, 2, joined(options, {further})));
    CHECK(differences(plain.snapshot(), place.snapshot()) == Words{});
  }
}

TEST_CASE("checkpointed blocks come back from a kill on two ranks", "[long]") {
  killed_ends_as_unbroken(
      {"gpt_config.activation_checkpointing=true", "distributed_config.static_graph=true"});
}

TEST_CASE("tf32 is taken on a CPU, where it has no effect, and the log says so") {
  const Workspace plain, place;
  succeed(alone(plain, {"trainer_config.max_steps=2"}));
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=2", "trainer_config.tf32=true"}));
  CHECK_THAT(run.out,
             Contains("trainer_config.tf32: without effect") && Contains("precision float32,"));
  CHECK(differences(plain.snapshot(), place.snapshot()) == Words{});
}

TEST_CASE("trainer eval repeats a run's own evaluation and takes other texts") {
  const Workspace place;
  const auto run =
      succeed(launched(place, 2, {"trainer_config.max_steps=8", "trainer_config.ema_decay=0.5"}));
  const Words options = {"eval", "--snapshot", place.snapshot()};
  const auto report =
      nlohmann::json::parse(succeed(trainer(place, joined(options, {"--json"}))).out);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6f |", report["loss"].get<double>());
  CHECK_THAT(run.out, Contains(std::string("Eval Loss ") + digits));
  CHECK(report["step"] == 8);
  ChildOptions two = launched(place, 2);
  two.argv.erase(std::find(two.argv.begin(), two.argv.end(), trainer_program()) + 1,
                 two.argv.end());
  two.argv.insert(two.argv.end(), {"eval", "--snapshot", place.snapshot(), "--json"});
  CHECK(nlohmann::json::parse(succeed(two).out) == report);
  const std::string own = test::read_bytes(place / "text.txt").substr(0, 40);
  const auto other =
      succeed(trainer(place, joined(options, {"--data", place.write("test.txt", own), "--json"})));
  CHECK(nlohmann::json::parse(other.out)["tokens"] == 39);
  const auto table = succeed(trainer(place, options)).out;
  CHECK_THAT(table, Contains("perplexity") && Contains("bits_per_character"));
  const auto strange = finish(trainer(
      place, joined(options, {"--data", place.write("strange.txt", "caf\xC3\xA9, na\xC3\xAFve")})));
  CHECK(strange.exit == 2);
  CHECK_THAT(errors_of(strange.err).at(0),
             Contains("--data: ") && Contains("strange.txt") && !Contains("data_config.path"));
}

TEST_CASE("a test text is evaluated once, at the end, as trainer eval does") {
  const Workspace place;
  const std::string text = place.write("test.txt", test::read_bytes(place / "text.txt").substr(50));
  const auto run =
      succeed(launched(place, 2, {"trainer_config.max_steps=4", "data_config.test_path=" + text}));
  const auto eval =
      succeed(trainer(place, {"eval", "--snapshot", place.snapshot(), "--data", text, "--json"}));
  char digits[32];
  std::snprintf(digits, sizeof digits, "Test Loss %.6f |",
                nlohmann::json::parse(eval.out)["loss"].get<double>());
  CHECK_THAT(run.out, Contains(digits));
}

TEST_CASE("a run warns of a key that another one leaves without effect") {
  const Workspace place;
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=1", "optimizer_config.momentum=0.9"}));
  CHECK_THAT(run.err, Contains("WARNING") &&
                          Contains("optimizer_config.momentum: has no effect with name=adamw"));
}

}  // namespace ddp::test
