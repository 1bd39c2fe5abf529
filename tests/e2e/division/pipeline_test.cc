// distributed_config.pipeline: a model that is cut into stages learns what one process learns.
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

/// Four layers with dropout, and a head of its own: the gradients of each parameter come from one
/// stage.
const Words kUntiedStages = {"gpt_config.n_layer=4", "gpt_config.tie_weights=false",
                             "trainer_config.max_steps=6", "trainer_config.save_every_steps=3"};
const Words kTiedStages = {"gpt_config.n_layer=4", "gpt_config.tie_weights=true",
                           "trainer_config.max_steps=6", "trainer_config.save_every_steps=3"};

const Words kEvaluatedStages =
    kUntiedStages + Words{"trainer_config.ema_decay=0.9", "trainer_config.eval_every_steps=2"};

Words micro_batches(int count) {
  return {"trainer_config.grad_accumulation_steps=" + std::to_string(count)};
}

Divided pipeline(int ranks, const std::string& schedule = "1f1b") {
  return {ranks, stages(ranks, schedule), "Pipeline: "};
}

/// Each pipeline learns what one process learns from as many micro-batches.
template <class Place = Workspace>
void check_like_one_process(const std::vector<Divided>& pipelines, int micro,
                            const Words& options) {
  check_all_same<Place>(pipelines, {1, {}}, options + micro_batches(micro));
}

}  // namespace

TEST_CASE("a pipeline learns bit for bit what one process learns, with every schedule") {
  Divided through_sockets = pipeline(3);
  through_sockets.words.emplace_back("distributed_config.backend=gloo");
  check_like_one_process({through_sockets, pipeline(2, "gpipe"), pipeline(2, "interleaved")}, 4,
                         kEvaluatedStages);
}

TEST_CASE("a pipeline of any length learns what one process learns", "[long]") {
  check_like_one_process({pipeline(2), pipeline(3)}, 4, kEvaluatedStages);
  check_like_one_process({pipeline(3), pipeline(3, "gpipe")}, 5, kEvaluatedStages);
  check_like_one_process({pipeline(4), pipeline(4, "gpipe")}, 3, kEvaluatedStages);
  check_like_one_process({pipeline(3)}, 1, kEvaluatedStages);
  check_like_one_process<LlamaWorkspace>({pipeline(2)}, 4, {});
}

TEST_CASE("a pipeline learns the same with other optimizers, frozen layers and recomputed ones",
          "[long]") {
  for (const Words& option :
       {Words{"optimizer_config.name=sgd", "optimizer_config.momentum=0.9"},
        Words{"optimizer_config.name=muon"},
        Words{"trainer_config.freeze=[\"transformer.wte.*\",\"transformer.h.3.ln_1.*\"]"},
        Words{"gpt_config.activation_checkpointing=true"}, Words{"gpt_config.loss_chunk_size=7"},
        Words{"gpt_config.fused_cpu_kernels=false"},
        Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
              "trainer_config.amp_dtype=bf16"},
        Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
              "trainer_config.amp_dtype=fp16", "trainer_config.max_steps=20"}})
    check_like_one_process({pipeline(2)}, 4, kUntiedStages + option);
}

TEST_CASE("a Llama in stages learns bit for bit what one process learns", "[long]") {
  check_like_one_process<LlamaWorkspace>({pipeline(3)}, 4, {});
  check_like_one_process<LlamaWorkspace>({pipeline(3, "gpipe")}, 3,
                                         {"llama_config.activation_checkpointing=true"});
}

TEST_CASE("a model of experts in stages learns bit for bit what one process learns") {
  check_like_one_process<LlamaWorkspace>({pipeline(2, "gpipe")}, 4, kOfExperts);
}

TEST_CASE("a model of experts in three stages learns bit for bit what one process learns",
          "[long]") {
  check_like_one_process<LlamaWorkspace>({pipeline(3)}, 4, kOfExperts);
}

TEST_CASE("two copies of a pipeline learn bit for bit what two copies of the model learn",
          "[long]") {
  check_all_same({{4, stages(2)}, {4, stages(2, "interleaved")}}, {2, {}},
                 kUntiedStages + micro_batches(2) + Words{"trainer_config.ema_decay=0.9"});
}

namespace {

// The table's gradient is the sum of two stages' parts: another order of summation than in one
// process.
void check_tied_table(int count) {
  INFO(count << " stages");
  const Workspace one, cut;
  const Words options = kTiedStages + micro_batches(4);
  succeed(alone(one, options));
  succeed(launched(cut, count, options + stages(count)));
  CHECK(largest_parameter_distance(cut.snapshot(), one.snapshot()) < 1e-4);
}

void check_tied_table_of_copies(int count) {
  INFO(count << " stages");
  const Workspace one, cut, again, copies;
  const Words options = kTiedStages + micro_batches(4);
  succeed(alone(one, options));
  succeed(launched(cut, count, options + stages(count)));
  succeed(launched(again, count, options + stages(count)));
  CHECK(differences(again.snapshot(), cut.snapshot()) == Words{});
  // Two copies of the pipeline: the same step from half as many micro-batches each.
  succeed(launched(copies, 2 * count, kTiedStages + micro_batches(2) + stages(count)));
  CHECK(largest_parameter_distance(copies.snapshot(), one.snapshot()) < 1e-4);
}

}  // namespace

TEST_CASE("a tied table is trained by the first and the last stage together") {
  check_tied_table(2);
}

TEST_CASE("a tied table of two copies of two or three stages is trained, the same each time",
          "[long]") {
  check_tied_table(3);
  for (const int count : {2, 3}) check_tied_table_of_copies(count);
}

TEST_CASE("NaN in one stage is a bad step for all stages", "[long]") {
  const nlohmann::json faults = {"rank=1 step=4 kind=nan"};
  for (const char* policy : {"skip", "rollback"}) {
    INFO(policy);
    const Words options = kUntiedStages + micro_batches(2) +
                          Words{std::string("trainer_config.bad_step_policy=") + policy};
    const Workspace one, cut;
    const nlohmann::json alone_faults = {"rank=0 step=4 kind=nan"};
    succeed(alone(one, options + Words{"trainer_config.fault_plan=" + alone_faults.dump()}));
    const auto run = succeed(launched(
        cut, 2, options + stages(2) + Words{"trainer_config.fault_plan=" + faults.dump()}));
    CHECK_THAT(run.out, Catch::Contains("Bad steps: 1"));
    CHECK(differences(cut.snapshot(), one.snapshot()) == Words{});
  }
}

TEST_CASE("samples, histograms, replica checks and spikes change nothing in a pipelined run",
          "[long]") {
  const Words training = kUntiedStages + micro_batches(4) + Words{"trainer_config.ema_decay=0.9"};
  const Workspace plain, busy;
  const auto by_one = succeed(alone(plain, training + kBusy));
  const auto run = succeed(launched(busy, 2, training + kBusy + stages(2)));
  CHECK_THAT(run.out, Catch::Contains("Sample:"));
  CHECK(content_sha256(busy) == content_sha256(plain));
  const auto sample_of = [](const std::string& out) { return out.substr(out.find("Sample:"), 60); };
  CHECK(sample_of(run.out) == sample_of(by_one.out));
}

TEST_CASE("a snapshot of a pipelined run generates text in one process") {
  const Workspace place;
  succeed(launched(place, 2, kTiedStages + stages(2)));
  const auto text = succeed(trainer(place, {"generate", "--snapshot", place.snapshot(), "--prompt",
                                            "a", "--max_new_tokens", "5"}));
  CHECK_FALSE(text.out.empty());
}

}  // namespace ddp::test
