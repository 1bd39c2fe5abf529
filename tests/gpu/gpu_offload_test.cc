// distributed_config.offload=optimizer: the CPU updates, the GPU has the memory.
#include <cstdint>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kOffload = {"distributed_config.offload=optimizer"};
const Words kAveraged = {"trainer_config.max_steps=6", "trainer_config.eval_every_steps=3",
                         "trainer_config.ema_decay=0.9"};

/// Fake GPUs compute an operation by its CPU kernel, so even the optimizer's bits are the same.
void check_offload_changes_nothing(int ranks, const Words& words) {
  const Workspace with, without;
  const auto expected = succeed(on_gpus(without, ranks, launched(without, ranks, words)));
  const auto run = succeed(on_gpus(with, ranks, launched(with, ranks, joined(words, kOffload))));
  CHECK(differences(with.snapshot(), without.snapshot()) == Words{});
  CHECK(steps_of(run.out) == steps_of(expected.out));
  CHECK(evaluations_of(run.out) == evaluations_of(expected.out));
  CHECK_FALSE(evaluations_of(run.out).empty());
}

Words named(const std::string& strategy) { return {"distributed_config.strategy=" + strategy}; }

struct Peak {
  int64_t measured = 0;
  int64_t estimated = 0;
};

Peak peak_of(const Words& words) {
  const Workspace place;
  succeed(on_gpus(place, 1, alone(place, words)));
  const auto summary = nlohmann::json::parse(read_bytes(place / "run_summary.json"));
  const auto estimate = succeed(on_gpus(
      place, 1, trainer(place, joined({"estimate", "--config", "config.yaml", "--json"}, words))));
  return {summary.at("peak_device_memory_bytes").at(0).get<int64_t>(),
          nlohmann::json::parse(estimate.out).at("needed_bytes").get<int64_t>()};
}

const Words kAccumulating = joined(kAveraged, {"trainer_config.grad_accumulation_steps=2"});

}  // namespace

TEST_CASE("with offload a GPU learns bit for bit what it learns without") {
  if (!gpus_are_faked()) return;
  check_offload_changes_nothing(1, joined(kAveraged, {"optimizer_config.name=muon"}));
}

TEST_CASE("with offload two ranks learn bit for bit what they learn without") {
  if (!gpus_are_faked()) return;
  check_offload_changes_nothing(2, joined(kAccumulating, named("zero3")));
}

TEST_CASE("with offload every optimizer and strategy learns what it learns without", "[long]") {
  if (!gpus_are_faked()) return;
  for (const char* name : {"adamw", "adam", "sgd"}) {
    INFO(name);
    Words words = kAveraged;
    words.push_back(std::string("optimizer_config.name=") + name);
    if (words.back().ends_with("sgd")) words.push_back("optimizer_config.momentum=0.9");
    check_offload_changes_nothing(1, words);
  }
  for (const char* strategy : {"ddp", "zero1", "zero2"}) {
    INFO(strategy);
    check_offload_changes_nothing(2, joined(kAccumulating, named(strategy)));
  }
}

// The first scale is too large for float16.
TEST_CASE("with offload a step whose gradients overflow changes nothing") {
  if (!gpus_are_faked()) return;
  const std::string nan = plan_of({"rank=1 step=3 kind=nan"});
  const Words half =
      joined(kAveraged, {"trainer_config.use_amp=true", "trainer_config.amp_dtype=float16", nan});
  check_offload_changes_nothing(2, joined(half, named("zero1")));
}

namespace {

void check_resumes_with_offload(const std::vector<std::pair<Words, Words>>& runs) {
  const Words half = {"trainer_config.max_steps=5", "trainer_config.ema_decay=0.9"};
  const Words whole = {"trainer_config.max_steps=10", "trainer_config.ema_decay=0.9"};
  const Workspace unbroken;
  succeed(on_gpus(unbroken, 2, launched(unbroken, 2, whole)));
  for (const auto& [before, after] : runs) {
    const Workspace place;
    succeed(on_gpus(place, 2, launched(place, 2, joined(half, before))));
    const auto run = succeed(on_gpus(place, 2, launched(place, 2, joined(whole, after))));
    CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
    CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
  }
}

}  // namespace

TEST_CASE("a run resumes from its snapshot with offload and without") {
  if (!gpus_are_faked()) return;
  const auto until = [](int steps) {
    return Words{"trainer_config.max_steps=" + std::to_string(steps),
                 "trainer_config.ema_decay=0.9"};
  };
  const Workspace unbroken, place;
  succeed(on_gpus(unbroken, 2, launched(unbroken, 2, until(9))));
  succeed(on_gpus(place, 2, launched(place, 2, joined(until(3), named("zero3")))));
  for (const Words& words : {joined(until(6), joined(kOffload, named("zero1"))), until(9)}) {
    const auto run = succeed(on_gpus(place, 2, launched(place, 2, words)));
    CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
  }
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
}

TEST_CASE("a run that others began resumes with offload under every strategy", "[long]") {
  if (!gpus_are_faked()) return;
  check_resumes_with_offload(
      {{{}, kOffload}, {joined(kOffload, named("zero2")), joined(kOffload, named("zero3"))}});
}

TEST_CASE("with offload a killed rank restarts the job, which ends as the unbroken one") {
  if (!gpus_are_faked()) return;
  const Words words = joined({"trainer_config.max_steps=12", "trainer_config.ema_decay=0.9"},
                             joined(kOffload, named("zero1")));
  const Workspace unbroken, killed;
  succeed(on_gpus(unbroken, 2, launched(unbroken, 2, words)));
  const std::string kills = plan_of({"rank=1 step=8 kind=kill attempt=0 phase=optimizer"});
  const auto run = succeed(
      on_gpus(killed, 2, launched(killed, 2, joined(words, {kills}), {"--max_restarts=3"})));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("restart 1 of 3"));
  CHECK(differences(unbroken.snapshot(), killed.snapshot()) == Words{});
}

TEST_CASE("with offload a rollback returns to the snapshot before the bad step", "[long]") {
  if (!gpus_are_faked()) return;
  const std::string nan = plan_of({"rank=0 step=8 kind=nan"});
  const Words words = {"trainer_config.max_steps=12", "trainer_config.ema_decay=0.9", nan,
                       "trainer_config.bad_step_policy=rollback"};
  const Workspace with, without;
  succeed(on_gpus(without, 1, alone(without, words)));
  const auto run = succeed(on_gpus(with, 1, alone(with, joined(words, kOffload))));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 5"));
  CHECK(differences(with.snapshot(), without.snapshot()) == Words{});
}

// Each operation of the device begins late, so that whoever does not wait for it reads old bytes.
TEST_CASE("with offload a slow device changes nothing that is trained or saved") {
  if (!gpus_are_faked()) return;
  const Words words = joined({"trainer_config.max_steps=8", "trainer_config.save_every_steps=3",
                              "trainer_config.ema_decay=0.9", "trainer_config.eval_every_steps=4"},
                             kOffload);
  const Workspace fast, slow;
  succeed(on_gpus(fast, 1, alone(fast, words)));
  auto options = on_gpus(slow, 1, alone(slow, words));
  options.set["FAKECUDA_DELAY_US"] = "100";
  succeed(options);
  CHECK(differences(fast.snapshot(), slow.snapshot()) == Words{});
  CHECK(differences(fast.older(6), slow.older(6)) == Words{});
  CHECK(steps_of(log_of(fast)) == steps_of(log_of(slow)));
}

TEST_CASE("a step with offload copies gradients down and weights up, without a host sync") {
  if (!gpus_are_faked()) return;
  constexpr int kFew = 4, kMore = 9;
  const auto few = ledger_of_run(kFew, kOffload), more = ledger_of_run(kMore, kOffload);
  const auto few_without = ledger_of_run(kFew, {}), more_without = ledger_of_run(kMore, {});
  const auto bytes_of_step = [&](const auto& most, const auto& least, const char* kind) {
    const auto number = [&](const auto& ledger) {
      return ledger.at(kind).at("bytes").template get<int64_t>();
    };
    return (number(most) - number(least)) / (kMore - kFew);
  };
  const auto added_bytes = [&](const char* kind) {
    return bytes_of_step(more, few, kind) - bytes_of_step(more_without, few_without, kind);
  };
  CHECK(few.at("host_syncs") == more.at("host_syncs"));
  CHECK(few.at("pageable") == more.at("pageable"));
  const Workspace place;
  succeed(on_gpus(place, 1, alone(place, joined({"trainer_config.max_steps=1"}, kOffload))));
  const int64_t bytes = 4 * inspect(place, place.snapshot()).at("parameters").get<int64_t>();
  CHECK(added_bytes("d2h") == bytes + 8);
  CHECK(added_bytes("h2d") == bytes);
}

TEST_CASE("with offload the peak of a GPU's memory falls as estimated") {
  if (!gpus_are_faked()) return;
  const Words wide = {"gpt_config.n_embd=256", "trainer_config.ema_decay=0.9",
                      "trainer_config.max_steps=2", "trainer_config.eval_every_steps=null"};
  const Peak without = peak_of(wide), with = peak_of(joined(wide, kOffload));
  const auto falls = static_cast<double>(without.measured - with.measured);
  const auto estimated = static_cast<double>(without.estimated - with.estimated);
  CHECK(estimated > 12.0 * 1'500'000);
  CHECK(falls > 0.98 * estimated);
  CHECK(falls < 1.02 * estimated);
}

}  // namespace ddp::test
