// distributed_config.expert: ranks that share the experts of a mixture learn what one process and
// what ranks with all experts learn.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/logged_losses.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

using Catch::Contains;

Words experts_by(int ranks) { return {"distributed_config.expert=" + std::to_string(ranks)}; }
Words up_to_step(int count) { return {"trainer_config.max_steps=" + std::to_string(count)}; }

/// Ten steps of four micro-batches, whose gradients are clipped.
const Words kMixture =
    kOfExperts + Words{"optimizer_config.name=sgd",           "optimizer_config.momentum=0.9",
                       "optimizer_config.learning_rate=0.05", "trainer_config.max_steps=10",
                       "trainer_config.save_every_steps=5",   "trainer_config.eval_every_steps=5",
                       "trainer_config.global_batch_size=16", "trainer_config.batch_size=4",
                       "trainer_config.grad_norm_clip=0.5",   "trainer_config.ema_decay=0.9"};

void check_like(const LlamaWorkspace& other, const std::string& said_by_other,
                const LlamaWorkspace& place, const std::string& said, double margin = 1e-5) {
  // As printed: to four decimals.
  check_near(logged_losses(said), logged_losses(said_by_other), margin < 1e-4 ? 1.01e-4 : margin);
  CHECK(largest_parameter_distance(place.snapshot(), other.snapshot()) < margin);
}

void check_like_in_16_bits(const std::string& type) {
  const Words options =
      kMixture + Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                       "llama_config.activation_checkpointing=true",
                       "trainer_config.amp_dtype=" + type};
  const LlamaWorkspace all, place;
  const auto by_all = succeed(launched(all, 2, options));
  const auto run = succeed(launched(place, 2, options + experts_by(2)));
  check_like(all, by_all.out, place, run.out, 0.02);
}

/// Each way is how many ranks there are, and how many of them share the experts.
void check_experts(const std::vector<std::pair<int, int>>& ways) {
  const LlamaWorkspace one, all;
  const auto by_one = succeed(alone(one, kMixture));
  const auto by_all = succeed(launched(all, ways.back().first, kMixture));
  check_like(one, by_one.out, all, by_all.out);
  for (const auto& [ranks, expert] : ways) {
    INFO(ranks << " ranks, expert=" << expert);
    const LlamaWorkspace place;
    const auto run = succeed(launched(place, ranks, kMixture + experts_by(expert)));
    CHECK_THAT(run.out, Contains(fmt::format(
                            "Expert parallel: {} ranks share the experts, rank 0 holds ", expert)));
    check_like(one, by_one.out, place, run.out);
    check_like(all, by_all.out, place, run.out);
  }
}

/// A step without an update leaves the state as it was loaded, whichever rank had the NaN.
void check_state_of_experts_kept(const std::vector<Divided>& ways) {
  const LlamaWorkspace place;
  const Words options = kMixture + Words{"trainer_config.save_every_steps=1",
                                         "trainer_config.check_replicas_every_steps=1"};
  succeed(alone(place, options + up_to_step(2)));
  const std::string first = place / "first.pt";
  copy_snapshot(place.snapshot(), first);
  int step = 2;
  for (const Divided& way : ways) {
    INFO(way.ranks << " ranks, " << nlohmann::json(way.words).dump());
    const Words fault = {plan_of({fmt::format("rank={} step={} kind=nan", way.ranks - 1, ++step)})};
    succeed(launched(place, way.ranks, options + way.words + up_to_step(step) + fault));
    CHECK(changed_tensors(place.snapshot(), first) == Words{});
  }
  CHECK(inspect(place, place.snapshot()).at("optimizer_step") == 2);
}

}  // namespace

TEST_CASE("ranks that share experts learn what one process and ranks with all experts learn") {
  check_experts({{2, 2}});
}

TEST_CASE("any number of ranks that share experts learns what ranks with all experts learn",
          "[long]") {
  check_experts({{4, 2}, {4, 4}});
}

TEST_CASE("groups that share experts may have different numbers of micro-batches") {
  const Words six = kMixture + Words{"trainer_config.global_batch_size=24"};
  const LlamaWorkspace one, place;
  const auto by_one = succeed(alone(one, six));
  const auto run = succeed(launched(place, 4, six + experts_by(2)));
  check_like(one, by_one.out, place, run.out);
}

TEST_CASE("ranks that share experts learn the same in 16 bits, with blocks computed again",
          "[long]") {
  for (const char* type : {"bf16", "fp16"}) check_like_in_16_bits(type);
}

TEST_CASE("a state that ranks with shared experts have saved is loaded by any others") {
  check_state_of_experts_kept({{2, experts_by(2)}, {2, under("zero3")}, {1, {}}});
}

TEST_CASE("a state is kept by any number of ranks that share experts, in shards and in one file",
          "[long]") {
  check_state_of_experts_kept({{2, experts_by(2)},
                               {4, experts_by(4)},
                               {2, {}},
                               {4, experts_by(2)},
                               {2, experts_by(2) + Words{"trainer_config.snapshot_shards=false"}},
                               {2, under("zero3")},
                               {1, {}}});
}

namespace {

void check_killed_ranks(int ranks, const Words& kills) {
  const Words options =
      kMixture + experts_by(2) + up_to_step(6) +
      Words{"optimizer_config.name=adamw", "optimizer_config.momentum=auto",
            "trainer_config.snapshot_every=2", "trainer_config.sample_every_steps=3",
            "trainer_config.sample_tokens=10"};
  const LlamaWorkspace unbroken, killed;
  succeed(launched(unbroken, ranks, options));
  succeed(launched(killed, ranks, options + Words{plan_of(kills)}, kTwentyRestarts));
  check_same_end(unbroken, killed);
  const auto evaluated = succeed(trainer(killed, {"eval", "--snapshot", "snapshot.pt"}));
  CHECK_THAT(evaluated.out, Contains("perplexity"));
  succeed(trainer(killed, {"generate", "--snapshot", "snapshot.pt", "--prompt", "the",
                           "--max_new_tokens", "5"}));
  succeed(trainer(killed, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  // Each rank reads its experts from the folder.
  const LlamaWorkspace tuned, tuned_by_all;
  const Words from =
      kMixture + up_to_step(2) + Words{"llama_config.init_from=" + (killed / "exported")};
  const auto by_all = succeed(launched(tuned_by_all, 2, from));
  const auto run = succeed(launched(tuned, 2, from + experts_by(2)));
  check_like(tuned_by_all, by_all.out, tuned, run.out);
}

}  // namespace

TEST_CASE("a killed rank of those that share experts costs nothing, and the model is one of all") {
  check_killed_ranks(2, {"rank=1 step=5 phase=backward kind=kill attempt=0"});
}

TEST_CASE("killed ranks of two groups that share experts cost nothing", "[long]") {
  check_killed_ranks(4, {"rank=3 step=3 phase=forward kind=kill attempt=0",
                         "rank=0 step=5 phase=backward kind=kill attempt=1"});
}

TEST_CASE("each of the ranks that share experts is estimated to hold its share alone") {
  const LlamaWorkspace place;
  const auto bytes = [&](const Words& more) {
    const Words estimate = {"estimate", "--config", "config.yaml", "--world_size", "4", "--json"};
    const auto run = succeed(trainer(place, estimate + kMixture + more));
    return nlohmann::json::parse(run.out).at("memory_per_rank_bytes");
  };
  const auto all = bytes({}), shared = bytes(experts_by(2));
  constexpr int64_t kExpertBytes = 3 * 4 * 3 * 64 * 48 * 4;  // layers, experts, matrices, float32
  for (const char* item : {"weights", "gradients", "optimizer", "averaged_weights"})
    CHECK(all.at(item).get<int64_t>() - shared.at(item).get<int64_t>() == kExpertBytes / 2);
}

namespace {

/// The last of `ranks` has drifted.
void check_compared(int ranks) {
  const LlamaWorkspace place;
  const Words faults = {fmt::format("rank={} step=5 kind=drift", ranks - 1)};
  const auto failed =
      finish(launched(place, ranks,
                      kMixture + experts_by(2) +
                          Words{"trainer_config.check_replicas_every_steps=1", plan_of(faults)}));
  CHECK(failed.exit == 1);
  CHECK_THAT(failed.err, Contains(fmt::format(
                             "step 5: the replicas differ: model.lm_head.weight of rank {} is not",
                             ranks - 1)));
}

}  // namespace

TEST_CASE("what ranks that share experts all hold is compared between them") { check_compared(2); }

TEST_CASE("what two groups that share experts hold is compared between them", "[long]") {
  check_compared(4);
}

TEST_CASE("experts that ranks cannot share are refused in one line") {
  const std::string key = "distributed_config.expert";
  const std::vector<Divided> refusals = {
      {3, experts_by(3), key + "=3: llama has 4 experts in a layer, which 3 ranks cannot share"},
      {3, experts_by(2), key + "=2 is 2 ranks for each copy of the model, and 3 ranks are not"},
      {2, experts_by(2) + Words{"trainer_config.global_batch_size=12"},
       "make trainer_config.global_batch_size a multiple of 8"},
      {2, experts_by(2) + Words{R"(trainer_config.freeze=["*experts.0.*"])"},
       "trainer_config.freeze: selects some of model.layers.0."},
      {1, experts_by(2) + under("zero1"),
       key + "=2: is not supported with distributed_config.strategy=zero1; remove one of them"},
      {1, experts_by(2) + stages(2), "not supported with distributed_config.pipeline=2"},
      {1, experts_by(2) + shared_by(2), "not supported with distributed_config.tensor=2"},
      {1, experts_by(2) + Words{"lora.rank=4"},
       key + "=2: is not supported with lora.rank; remove one of them"}};
  for (const Divided& refusal : refusals) {
    INFO(refusal.says);
    const LlamaWorkspace place;
    const Words options = kMixture + refusal.words;
    const auto run = finish(refusal.ranks == 1 ? alone(place, options)
                                               : launched(place, refusal.ranks, options));
    CHECK(run.exit != 0);
    CHECK_THAT(run.err, Contains(refusal.says));
  }
  const Workspace dense;
  const auto run = finish(launched(dense, 2, experts_by(2)));
  CHECK(run.exit != 0);
  CHECK_THAT(run.err, Contains(key + "=2: ranks share the experts of a mixture of experts, and"));
}

}  // namespace ddp::test
