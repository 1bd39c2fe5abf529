// Micro-batches as CUDA graphs: the numbers of their single launches, from fewer of them.
#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/e2e/faults.h"
#include "tests/e2e/logged_losses.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/e2e/saved_state.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kGraphs = {"trainer_config.cuda_graphs=true"};
const Words kNoGraphs = {"trainer_config.cuda_graphs=false"};
const std::string kCaptured = "launches of a micro-batch are replayed as one";

int graph_launches(const Workspace& place) {
  int launches = 0;
  for (const auto& ledger : ledgers_of(place)) {
    const auto& counters = ledger.at("counters");
    if (counters.contains("graph_launch"))
      launches += counters.at("graph_launch").at("calls").get<int>();
  }
  return launches;
}

/// Requires that both runs of a place's kind end with the same bits. Returns the graphs' output.
template <typename Place>
std::string check_same_bits(const Words& words, int replays) {
  const Place with, without;
  const auto by_graphs = succeed(on_gpus(with, 1, alone(with, joined(words, kGraphs))));
  const auto by_launches = succeed(on_gpus(without, 1, alone(without, joined(words, kNoGraphs))));
  INFO(by_graphs.out << by_graphs.err);
  CHECK(differences(with.snapshot(), without.snapshot()) == Words{});
  CHECK(steps_of(by_graphs.out) == steps_of(by_launches.out));
  CHECK(logged_losses(by_graphs.out) == logged_losses(by_launches.out));
  CHECK(graph_launches(with) == replays);
  CHECK(graph_launches(without) == 0);
  return by_graphs.out + by_graphs.err;
}

const Words kSixteenSteps = {"trainer_config.max_steps=16", "trainer_config.log_every_steps=1"};
constexpr int kReplays = 12;  // three steps to warm up, one in the stream of the graph

}  // namespace

TEST_CASE("a graph of a micro-batch trains bit for bit as its single launches, with dropout") {
  if (!gpus_are_faked()) return;
  const auto said = check_same_bits<Workspace>(
      joined(kSixteenSteps, {"trainer_config.use_amp=true", "trainer_config.amp_dtype=float16"}),
      kReplays);
  CHECK_THAT(said, Contains(kCaptured));
}

TEST_CASE("a graph in float32 or bfloat16 trains bit for bit as its single launches", "[long]") {
  if (!gpus_are_faked()) return;
  check_same_bits<Workspace>(kSixteenSteps, kReplays);
  check_same_bits<Workspace>(
      joined(kSixteenSteps, {"trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"}),
      kReplays);
}

TEST_CASE("graphs survive micro-batches, averaged weights, evaluations and samples in between") {
  if (!gpus_are_faked()) return;
  const Words words = joined(
      kSixteenSteps, {"trainer_config.grad_accumulation_steps=3", "trainer_config.ema_decay=0.9",
                      "trainer_config.eval_every_steps=2", "trainer_config.sample_every_steps=3",
                      "trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"});
  check_same_bits<Workspace>(words, 3 * (16 - 3) - 1);
}

// Each operation of the device begins late: who does not wait for another stream reads old bytes.
TEST_CASE("on a slow device a graph still trains bit for bit as its single launches") {
  if (!gpus_are_faked()) return;
  // No line of the log waits for the device in between.
  const Words words = {"trainer_config.max_steps=8", "trainer_config.log_every_steps=1000"};
  const Workspace slow, fast;
  auto options = on_gpus(slow, 1, alone(slow, joined(words, kGraphs)));
  options.set["FAKECUDA_DELAY_US"] = "200";
  succeed(options);
  succeed(on_gpus(fast, 1, alone(fast, joined(words, kNoGraphs))));
  CHECK(differences(slow.snapshot(), fast.snapshot()) == Words{});
}

TEST_CASE("an image classifier trains with graphs bit for bit, and with batch norm without them") {
  if (!gpus_are_faked()) return;
  const Words words = {"trainer_config.max_steps=12"};
  check_same_bits<ImageWorkspace>(words, 8);
  const auto said =
      check_same_bits<ImageWorkspace>(joined(words, {"image_config.batch_norm=local"}), 0);
  CHECK_THAT(said, Contains("CUDA graphs: not used; batch norm keeps statistics"));
}

// One of its batches is padded to another length.
TEST_CASE("a text classifier trains with graphs bit for bit") {
  if (!gpus_are_faked()) return;
  const auto said = check_same_bits<ReviewWorkspace>({"trainer_config.max_steps=12"}, 7);
  CHECK_THAT(said, Contains(kCaptured));
}

TEST_CASE("a killed run with graphs resumes bit for bit, as does one that rolls back") {
  if (!gpus_are_faked()) return;
  const Words saving = joined(kSixteenSteps, {"trainer_config.save_every_steps=3"});
  const auto run_with = [&](const Workspace& place, const Words& words) {
    return succeed(on_gpus(place, 1, launched(place, 1, words, {"--max_restarts=3"})));
  };
  const Workspace unbroken, killed, without, back, back_without;
  run_with(unbroken, joined(saving, kGraphs));
  CHECK(graph_launches(unbroken) == kReplays);
  run_with(without, joined(saving, kNoGraphs));
  CHECK(differences(unbroken.snapshot(), without.snapshot()) == Words{});
  const auto run = run_with(killed, joined(joined(saving, kGraphs),
                                           {plan_of({"rank=0 step=9 phase=backward kind=kill"})}));
  CHECK_THAT(run.err, Contains("restart 1 of 3"));
  CHECK(differences(unbroken.snapshot(), killed.snapshot()) == Words{});

  const Words bad = joined(
      saving, {"trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16",
               plan_of({"rank=0 step=9 kind=nan"}), "trainer_config.bad_step_policy=rollback"});
  CHECK_THAT(run_with(back, joined(bad, kGraphs)).err, Contains("Back to the snapshot of step 6"));
  run_with(back_without, joined(bad, kNoGraphs));
  CHECK(differences(back.snapshot(), back_without.snapshot()) == Words{});
}

TEST_CASE("with a graph a step makes one launch of the micro-batch's, and the host never waits") {
  if (!gpus_are_faked()) return;
  constexpr int kFew = 6, kMany = 11;
  const Json few = ledger_of_run(kFew, kGraphs), many = ledger_of_run(kMany, kGraphs);
  CHECK(few.at("host_syncs") == many.at("host_syncs"));
  CHECK(few.at("pageable") == many.at("pageable"));
  CHECK(few.at("alloc_calls") == many.at("alloc_calls"));
  const int with = (many.at("launches").get<int>() - few.at("launches").get<int>()) / 5;
  const int without = (ledger_of_run(kMany, kNoGraphs).at("launches").get<int>() -
                       ledger_of_run(kFew, kNoGraphs).at("launches").get<int>()) /
                      5;
  CAPTURE(with, without);
  CHECK(3 * with < without);
}

TEST_CASE("a micro-batch that cannot be captured trains by single launches, with one line") {
  if (!gpus_are_faked()) return;
  const Workspace fails, without;
  auto options = on_gpus(fails, 1, alone(fails, joined(kSixteenSteps, kGraphs)));
  options.set["FAKECUDA_CAPTURE_FAILS"] = "1";
  const auto run = succeed(options);
  CHECK_THAT(run.err, Contains("WARNING") && Contains("CUDA graphs: not used; CUDA error: "
                                                      "operation failed due to a previous error "
                                                      "during capture"));
  CHECK(run.err.find("CUDA graphs") == run.err.rfind("CUDA graphs"));
  succeed(on_gpus(without, 1, alone(without, joined(kSixteenSteps, kNoGraphs))));
  CHECK(differences(fails.snapshot(), without.snapshot()) == Words{});
}

TEST_CASE("batches of ever other shapes or targets train without graphs, with one line") {
  if (!gpus_are_faked()) return;
  const auto said = check_same_bits<ChatPlace>({"trainer_config.max_steps=16"}, 0);
  CHECK_THAT(said,
             Contains("CUDA graphs: not used; shapes or numbers of targets change from batch"));
}

TEST_CASE("by default a small model gets graphs, and one that fills the GPU does not") {
  if (!gpus_are_faked()) return;
  const Workspace small, large;
  const auto by_small = succeed(on_gpus(small, 1, alone(small, kSixteenSteps)));
  CHECK_THAT(by_small.out, Contains(kCaptured));
  auto options = on_gpus(large, 1,
                         alone(large, {"trainer_config.max_steps=5", "gpt_config.n_embd=1024",
                                       "data_config.train_split=1"}));
  options.set["FAKECUDA_NUMERICS"] = "0";
  options.set["FAKECUDA_MEMORY_GB"] = "1.3";  // half a GB is the context's
  CHECK_THAT(succeed(options).out,
             Contains("CUDA graphs: not used; tensors take more than a quarter"));
}

TEST_CASE("cuda_graphs=true without a GPU is an error, and auto is silent") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  const auto refused = finish(alone(place, kGraphs));
  CHECK(refused.exit == 2);
  CHECK_THAT(refused.err, Contains("trainer_config.cuda_graphs=true needs a GPU"));
  const auto run = succeed(alone(place, {"trainer_config.max_steps=2"}));
  CHECK_THAT(run.out + run.err, !Contains("CUDA graphs"));
}

TEST_CASE("two ranks train without graphs, with one line") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  const Words words = joined({"trainer_config.max_steps=2"}, kGraphs);
  const auto run = succeed(on_gpus(place, 2, launched(place, 2, words)));
  const std::string said = run.out + run.err;
  CHECK_THAT(said, Contains("CUDA graphs: not used; 2 ranks train together"));
  CHECK(said.find("CUDA graphs") == said.rfind("CUDA graphs"));
}

}  // namespace ddp::test
