// The host never waits for the device within a training step: counted, not timed. The steps of a
// causal language model, in each precision and with each optimizer, are in expected_counts.json.
// Without CUDA graphs, which take no notice of what a step asks for: gpu_graphs_test.cc has those.
#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

/// One run's ledger; but for its length all runs of a place's kind are alike.
template <typename Place>
Json ledger_of_run(int steps, const Words& overrides) {
  const Place place;
  Words all = {"trainer_config.max_steps=" + std::to_string(steps),
               "trainer_config.save_every_steps=null", "trainer_config.log_every_steps=1000",
               "trainer_config.cuda_graphs=false"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  succeed(on_gpus(place, 1, alone(place, all)));
  return ledgers_of(place).at(0);
}

/// The call sites at which `more` has waited more often than `fewer`.
Json new_sites(const Json& fewer, const Json& more) {
  Json sites = Json::object();
  for (const auto& [site, count] : more.items()) {
    if (count != fewer.value(site, 0)) sites[site] = count;
  }
  return sites;
}

constexpr int kFew = 4;
constexpr int kMany = 9;

void check_no_more_waits(const Json& few, const Json& many) {
  CHECK(new_sites(few.at("sync_sites"), many.at("sync_sites")) == Json::object());
  CHECK(few.at("host_syncs") == many.at("host_syncs"));
  CHECK(many.at("launches") > few.at("launches"));
}

/// By the difference of two run lengths. Returns how many copies to the host a step makes.
template <typename Place>
int copies_of_step_without_waiting(const Words& overrides) {
  const Json few = ledger_of_run<Place>(kFew, overrides);
  const Json many = ledger_of_run<Place>(kMany, overrides);
  check_no_more_waits(few, many);
  CHECK(few.at("pageable") == many.at("pageable"));
  const int copies = many.at("d2h").at("calls").get<int>() - few.at("d2h").at("calls").get<int>();
  CHECK(copies % (kMany - kFew) == 0);
  return copies / (kMany - kFew);
}

/// By the difference of two evaluations after one step.
template <typename Place>
void check_evaluation_without_waiting() {
  const auto ledger = [](const std::string& batches) {
    return ledger_of_run<Place>(
        1, {"trainer_config.eval_every_steps=1", "trainer_config.eval_iters=" + batches});
  };
  const Json one = ledger("1");
  const Json three = ledger("3");
  check_no_more_waits(one, three);
  CHECK(one.at("pageable") == three.at("pageable"));
}

/// `numbers`: what the host reads of a step.
template <typename Place>
void check_steps_without_waiting(const Words& overrides = {}, int numbers = 1) {
  CHECK(copies_of_step_without_waiting<Place>(overrides) == numbers);
}

template <typename Place>
void check_two_ranks_without_waiting(const Words& overrides = {}) {
  const auto ledger = [&](int steps) {
    const Place place;
    const Words length = {"trainer_config.max_steps=" + std::to_string(steps),
                          "trainer_config.save_every_steps=null",
                          "trainer_config.log_every_steps=1000"};
    succeed(on_gpus(place, 2, launched(place, 2, joined(length, overrides))));
    return ledgers_of(place).at(0);
  };
  check_no_more_waits(ledger(2), ledger(4));
}

}  // namespace

TEST_CASE("the ledger names the line at which the host waits for the GPU") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  ChildOptions probe;
  probe.argv = {sync_probe()};
  succeed(on_gpus(place, 1, probe));
  const Json sites = ledgers_of(place).at(0).at("sync_sites");
  REQUIRE(sites.size() == 1);
  CHECK_THAT(sites.begin().key(), Catch::StartsWith("cudaDeviceSynchronize < (sync_probe.cc:7)"));
}

// Whether its numbers are finite, the loss, the gradient's norm.
TEST_CASE("a line of the log reads two numbers more, without a host synchronization") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<Workspace>({"trainer_config.log_every_steps=1"}, 3);
}

// Whether its numbers are finite, the loss, the gradient's norm together with the scaler's verdict.
TEST_CASE("a step in float16 that is watched for spikes reads three numbers, without a sync") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<Workspace>(
      {"trainer_config.use_amp=true", "trainer_config.amp_dtype=float16",
       "trainer_config.spike_factor=100"},
      3);
}

TEST_CASE("a snapshot is captured, to a file and to memory, without a host synchronization") {
  if (!gpus_are_faked()) return;
  const auto ledger = [](int steps) {
    const Workspace place;
    const Words words = {"trainer_config.max_steps=" + std::to_string(steps),
                         "trainer_config.log_every_steps=1000", "trainer_config.cuda_graphs=false",
                         "trainer_config.save_every_steps=1", "trainer_config.ram_snapshots=true"};
    succeed(on_gpus(place, 1, launched(place, 1, words)));
    return ledgers_of(place).at(0);
  };
  const Json few = ledger(kFew), many = ledger(kMany);
  check_no_more_waits(few, many);
  CHECK(few.at("pageable") == many.at("pageable"));
  // The state's tensors; those in memory as often as the copy before is complete.
  const auto copies = [](const Json& of) { return of.at("d2h").at("calls").get<int>(); };
  CHECK(copies(many) - copies(few) > (kMany - kFew) * 3 * 28);
}

TEST_CASE("replicas are compared without a host synchronization") {
  if (!gpus_are_faked()) return;
  const int copies =
      copies_of_step_without_waiting<Workspace>({"trainer_config.check_replicas_every_steps=1"});
  CHECK(copies > 3 * 28);
}

namespace {

void check_zero_without_waiting(const std::vector<std::string>& strategies) {
  const auto ledger = [](const std::string& strategy, int steps) {
    const Workspace place;
    const Words words = {
        "trainer_config.max_steps=" + std::to_string(steps), "trainer_config.save_every_steps=null",
        "trainer_config.log_every_steps=1000", "trainer_config.grad_accumulation_steps=2",
        "distributed_config.strategy=" + strategy};
    succeed(on_gpus(place, 2, launched(place, 2, words)));
    return ledgers_of(place).at(0);
  };
  for (const std::string& strategy : strategies) {
    INFO(strategy);
    // Within an epoch: the evaluation after it collects weights, too.
    constexpr int kSome = 2, kMore = 4;
    const Json few = ledger(strategy, kSome);
    const Json many = ledger(strategy, kMore);
    CHECK(new_sites(few.at("sync_sites"), many.at("sync_sites")) == Json::object());
    CHECK(few.at("host_syncs") == many.at("host_syncs"));
    const auto calls = [](const Json& of, const char* kind) {
      return of.at("nccl").at(kind).at("calls").get<int>();
    };
    const int reductions = calls(many, "reduce_scatter") - calls(few, "reduce_scatter");
    const int gathers = calls(many, "all_gather") - calls(few, "all_gather");
    const int micro_batches = 2 * (kMore - kSome);
    constexpr int kBlocks = 2;
    // One bucket; or each block and the root, before their forward and backward passes.
    CHECK(gathers == (strategy == "zero3" ? micro_batches * 2 * (kBlocks + 1) : micro_batches / 2));
    if (strategy == "zero1") CHECK(reductions == gathers);
    if (strategy == "zero2") CHECK(reductions == micro_batches);
    if (strategy == "zero3") CHECK(reductions == micro_batches * (kBlocks + 1));
  }
}

}  // namespace

TEST_CASE("a step with zero3 on two ranks never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_zero_without_waiting({"zero3"});
}

TEST_CASE("a step with zero1 or zero2 on two ranks never waits for the GPU", "[long]") {
  if (!gpus_are_faked()) return;
  check_zero_without_waiting({"zero1", "zero2"});
}

// Kernels that compute nothing: of those with numbers, attention is a formula of many.
TEST_CASE("in bfloat16 a micro-batch takes two thirds of torch's launches") {
  if (!gpus_are_faked()) return;
  const auto launches_of_run = [](bool fused, int micro_batches) {
    const Workspace place;
    const Words words = {
        "trainer_config.max_steps=" + std::to_string(kFew),
        "data_config.train_split=1",  // an evaluation without numbers may be NaN
        "trainer_config.save_every_steps=null",
        "trainer_config.log_every_steps=1000",
        "trainer_config.cuda_graphs=false",
        "trainer_config.use_amp=true",
        "trainer_config.amp_dtype=bfloat16",
        "gpt_config.embd_pdrop=0",
        "gpt_config.resid_pdrop=0",
        "gpt_config.attn_pdrop=0",
        "gpt_config.n_layer=6",
        std::string("trainer_config.fused_gpu_kernels=") + (fused ? "true" : "false"),
        "trainer_config.grad_accumulation_steps=" + std::to_string(micro_batches)};
    auto options = on_gpus(place, 1, alone(place, words));
    options.set["FAKECUDA_NUMERICS"] = "0";
    succeed(options);
    return ledgers_of(place).at(0).at("launches").get<int>();
  };
  const auto launches_of_micro_batch = [&](bool fused) {
    return (launches_of_run(fused, 3) - launches_of_run(fused, 2)) / kFew;
  };
  const int ours = launches_of_micro_batch(true);
  const int torchs = launches_of_micro_batch(false);
  CAPTURE(ours, torchs);
  constexpr int kLayers = 6;
  CHECK(ours <= 42 * kLayers + 40);
  CHECK(3 * ours <= 2 * torchs + 3);
}

TEST_CASE("a training step on packed conversations never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<ChatPlace>();
}

TEST_CASE("a training step of a masked language model never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<MaskedWorkspace>();
}

TEST_CASE("a training step of a text classifier never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<ReviewWorkspace>();
}

TEST_CASE("a training step of an image classifier never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_steps_without_waiting<ImageWorkspace>();
}

TEST_CASE("a step with synchronized batch norm on two ranks never waits for the GPU") {
  if (!gpus_are_faked()) return;
  check_two_ranks_without_waiting<ImageWorkspace>({"image_config.batch_norm=synchronized"});
}

TEST_CASE("a step of a masked language model on two ranks never waits for the GPU", "[long]") {
  if (!gpus_are_faked()) return;
  check_two_ranks_without_waiting<MaskedWorkspace>();
}

TEST_CASE("an evaluated batch of any other task never makes the host wait for the GPU") {
  if (!gpus_are_faked()) return;
  check_evaluation_without_waiting<MaskedWorkspace>();
  check_evaluation_without_waiting<ReviewWorkspace>();
  check_evaluation_without_waiting<ImageWorkspace>();
}

}  // namespace ddp::test
