// distributed_config.pipeline, tensor and strategy together learn what one of them learns.
#include "tests/support/catch.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

/// Four layers of four heads, with dropout. Each parameter's gradients come from one stage.
const Words kUntied = {"gpt_config.n_layer=4",        "gpt_config.n_head=4",
                       "gpt_config.n_embd=64",        "gpt_config.tie_weights=false",
                       "trainer_config.max_steps=4",  "trainer_config.save_every_steps=2",
                       "trainer_config.batch_size=4", "trainer_config.global_batch_size=16",
                       "trainer_config.ema_decay=0.9"};
const Words kFloat16 = {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                        "trainer_config.amp_dtype=fp16"};
const Words kTied = kUntied + Words{"gpt_config.tie_weights=true"};

const Words kEvaluated = {"trainer_config.eval_every_steps=2",
                          "trainer_config.sample_every_steps=4", "trainer_config.sample_tokens=8"};

}  // namespace

TEST_CASE(
    "stages whose layers are shared learn bit for bit what ranks that share a whole model do") {
  check_same({4, stages(2, "gpipe") + shared_by(2, true)}, {2, shared_by(2, true)},
             kUntied + kEvaluated);
}

TEST_CASE("with other schedules and in 16 bits stages with shared layers learn the same, too",
          "[long]") {
  check_all_same({{4, stages(2) + shared_by(2)}, {4, stages(2, "interleaved") + shared_by(2)}},
                 {2, shared_by(2)}, kUntied);
  check_same<LlamaWorkspace>({4, stages(2) + shared_by(2)}, {2, shared_by(2)},
                             {"trainer_config.grad_accumulation_steps=2"});
  check_same(
      {4, stages(2) + shared_by(2)}, {2, shared_by(2)},
      kUntied + Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                      "trainer_config.amp_dtype=fp16", "gpt_config.activation_checkpointing=true"});
}

TEST_CASE("two copies of such a model learn with zero1 what two copies of shared layers do",
          "[long]") {
  const Words both = stages(2) + shared_by(2);
  check_same({8, both + under("zero1")}, {4, shared_by(2)}, kUntied + kEvaluated);
}

TEST_CASE("zero1 divides the optimizer's state between copies of a pipeline, and learns the same",
          "[long]") {
  for (const Words& model : {kUntied, kTied}) {
    for (const char* schedule : {"1f1b", "interleaved"})
      check_same({4, stages(2, schedule) + under("zero1")}, {4, stages(2, schedule)}, model);
  }
  check_same(
      {4, stages(2) + under("zero1")}, {4, stages(2)},
      kUntied + kEvaluated +
          Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                "trainer_config.amp_dtype=fp16", "trainer_config.freeze=[\"transformer.wte.*\"]",
                "optimizer_config.name=muon"});
}

TEST_CASE("with a tied table zero1, stages and shared layers learn what they learn without zero1",
          "[long]") {
  const Words both = stages(2) + shared_by(2);
  check_same({8, both + under("zero1")}, {8, both}, kTied + kEvaluated);
  const Words by_sequence = stages(2) + shared_by(2, true);
  check_same({8, by_sequence + under("zero1")}, {8, by_sequence}, kTied);
}

TEST_CASE("zero2 and zero3 divide more between copies of shared layers, and learn the same",
          "[long]") {
  const Words one_each = kTied + Words{"trainer_config.global_batch_size=8"};
  for (const char* strategy : {"zero2", "zero3"}) {
    check_same({4, shared_by(2) + under(strategy)}, {4, shared_by(2)}, one_each + kEvaluated);
    // Several micro-batches are added up as one copy of the model would.
    check_same({4, shared_by(2) + under(strategy)}, {2, shared_by(2)}, kUntied);
  }
}

// Each rank has the gradients of its own rows or heads of them, and shards of those: shards that
// lie otherwise on ranks that share layers, if the vocabulary does not divide.
TEST_CASE("under zero, gradients of norms that ranks have parts of are summed, as without zero",
          "[long]") {
  const auto each_zero = [](const Words& shared) {
    std::vector<Divided> ways;
    for (const char* strategy : {"zero1", "zero2", "zero3"})
      ways.push_back({4, shared + under(strategy)});
    return ways;
  };
  const Words one_each = {"trainer_config.global_batch_size=8"};
  const Words by_sequence = shared_by(2, true);
  for (const Words& model : {kUntied, kTied})
    check_all_same(each_zero(by_sequence), {4, by_sequence}, model + one_each + kEvaluated);
  check_all_same<LlamaWorkspace>(each_zero(shared_by(2)), {4, shared_by(2)},
                                 {"llama_config.qk_norm=true", "trainer_config.max_steps=3"});
  const Words four = shared_by(4, true);
  check_same({8, four + under("zero1")}, {8, four}, kTied + one_each + kFloat16);
}

TEST_CASE("weights of a snapshot or a folder are loaded into stages and shared layers", "[long]") {
  const Workspace trained;
  succeed(alone(trained, kTied));
  succeed(trainer(trained, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  for (const std::string from : {"snapshot.pt", "exported"}) {
    INFO(from);
    const Words options =
        kTied + Words{"gpt_config.init_from=" + (trained / from), "optimizer_config.name=sgd",
                      "optimizer_config.learning_rate=0.05"};
    const Workspace one;
    succeed(alone(one, options));
    for (const Divided& way : {Divided{2, stages(2)}, Divided{2, shared_by(2)},
                               Divided{4, stages(2, "interleaved") + shared_by(2)}}) {
      INFO(nlohmann::json(way.words).dump());
      const Workspace divided;
      succeed(launched(divided, way.ranks, options + way.words));
      CHECK(largest_parameter_distance(divided.snapshot(), one.snapshot()) < 1e-4);
    }
  }
}

TEST_CASE("NaN on one rank is a bad step for all stages and all ranks that share layers") {
  const auto bad_step = [](int rank) {
    const nlohmann::json faults = {"rank=" + std::to_string(rank) + " step=3 kind=nan"};
    return Words{"trainer_config.bad_step_policy=skip",
                 "trainer_config.fault_plan=" + faults.dump()};
  };
  check_same({4, stages(2) + shared_by(2) + bad_step(3)}, {2, shared_by(2) + bad_step(1)}, kUntied);
}

// With fp16 a rank of its own would take the NaN for an overflow if its loss is a number.
TEST_CASE("in float16, NaN in the loss of one rank that shares layers is a bad step for all",
          "[long]") {
  const auto bad_step = [](int rank) {
    const nlohmann::json faults = {"rank=" + std::to_string(rank) + " step=3 kind=nan"};
    return Words{"trainer_config.bad_step_policy=skip",
                 "trainer_config.fault_plan=" + faults.dump()};
  };
  const Workspace first, second;
  const auto by_first = succeed(launched(first, 2, kTied + kFloat16 + shared_by(2) + bad_step(0)));
  const auto by_second =
      succeed(launched(second, 2, kTied + kFloat16 + shared_by(2) + bad_step(1)));
  CHECK_THAT(by_second.out, Catch::Contains("Bad steps: 1"));
  check_same_run(first, by_first.out, second, by_second.out);
}

// Few tokens: in float16 the gradient of the output layer is too large for the first scales, and
// no other is. It is the last stage's, or that of the rank that has the target's row.
TEST_CASE("an overflow on one rank of a divided model keeps all ranks from updating theirs") {
  const auto updates_of = [](const Workspace& place) {
    return inspect(place, place.snapshot()).at("optimizer_step").get<int>();
  };
  const Words one_token = kUntied + kFloat16 +
                          Words{"trainer_config.batch_size=1", "trainer_config.global_batch_size=1",
                                "data_config.block_size=1", "trainer_config.max_steps=10",
                                "trainer_config.check_replicas_every_steps=1"};
  check_same({2, stages(2)}, {1, {}}, one_token);
  const Workspace shared;
  succeed(launched(shared, 2, one_token + shared_by(2)));
  CHECK(updates_of(shared) < 10);
  CHECK(updates_of(shared) > 0);
}

TEST_CASE("auto chooses among the strategies that the division allows, and the run keeps it") {
  const auto chosen = [](const std::string& out) {
    const auto at = out.find("strategy=auto: ");
    return at == std::string::npos ? "" : out.substr(at, out.find('\n', at) - at);
  };
  const Words divided =
      kUntied + stages(2) + under("auto") + Words{"distributed_config.bucket_cap_mb=0.01"};
  const Workspace stages_fit, none_fits, one_copy;
  const auto first = succeed(launched(stages_fit, 4, divided));
  CHECK_THAT(chosen(first.out), Catch::Contains("auto: ddp: the fastest that fits"));
  // zero2 and zero3 would need less, but do not work with a pipeline.
  const auto lean =
      succeed(launched(none_fits, 4, divided + Words{"distributed_config.memory_limit_mb=150"}));
  CHECK_THAT(chosen(lean.out), Catch::Contains("auto: zero1: none is expected to fit"));
  const auto again = succeed(launched(none_fits, 4, divided + Words{"trainer_config.max_steps=6"}));
  CHECK_THAT(chosen(again.out), Catch::Contains("auto: zero1: as the run has used so far"));
  const auto alone = succeed(launched(one_copy, 2, kUntied + shared_by(2) + under("auto")));
  CHECK_THAT(chosen(alone.out), Catch::Contains("auto: ddp: there is one copy of the model"));
}

}  // namespace ddp::test
