// How the work is divided does not change what is learned.
#include <cmath>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

const Words kTenSteps = {"trainer_config.max_steps=10"};

std::string accumulate(int steps) {
  return "trainer_config.grad_accumulation_steps=" + std::to_string(steps);
}

TEST_CASE("two ranks learn bit for bit what one process learns from two micro-batches") {
  const Workspace two, one;
  const auto by_two = succeed(launched(two, 2, kTenSteps));
  const auto by_one = succeed(alone(one, joined(kTenSteps, {accumulate(2)})));
  CHECK(differences(two.snapshot(), one.snapshot()) == Words{});
  CHECK(content_sha256(two) == content_sha256(one));
  CHECK(steps_of(by_two.out) == steps_of(by_one.out));
  CHECK(steps_of(by_two.out).size() == 10);
}

TEST_CASE("a launched single rank learns bit for bit what a process alone learns") {
  const Workspace with_launcher, without;
  succeed(launched(with_launcher, 1, kTenSteps));
  succeed(alone(without, kTenSteps));
  CHECK(differences(with_launcher.snapshot(), without.snapshot()) == Words{});
}

TEST_CASE("small buckets and copied gradients change nothing in what two ranks learn") {
  const Workspace one_bucket, many_buckets;
  succeed(launched(one_bucket, 2, kTenSteps));
  succeed(launched(many_buckets, 2,
                   joined(kTenSteps, {"distributed_config.bucket_cap_mb=0.01",
                                      "distributed_config.gradient_as_bucket_view=false"})));
  CHECK(differences(one_bucket.snapshot(), many_buckets.snapshot()) == Words{});
}

TEST_CASE(
    "a graph declared static changes nothing in what two ranks learn, with accumulation too") {
  const Words ten_steps = joined(kTenSteps, {accumulate(2)});
  const Workspace plain, static_graph;
  succeed(launched(plain, 2, ten_steps));
  succeed(launched(static_graph, 2, joined(ten_steps, {"distributed_config.static_graph=true"})));
  CHECK(differences(plain.snapshot(), static_graph.snapshot()) == Words{});
}

// Through shared memory: bit for bit (shared_memory_test.cc).
TEST_CASE("four ranks learn within 1e-6 by Gloo what one process learns from four micro-batches") {
  // Gloo's four sums round differently, and AdamW moves a parameter by up to the learning rate: the
  // default one here.
  const Words ten_steps = joined(kTenSteps, {"optimizer_config.learning_rate=3e-4"});
  const Workspace four, one;
  succeed(launched(four, 4, joined(ten_steps, {"distributed_config.backend=gloo"})));
  succeed(alone(one, joined(ten_steps, {accumulate(4)})));
  CHECK(largest_parameter_distance(four.snapshot(), one.snapshot()) <= 1e-6);
}

TEST_CASE("two ranks train in bfloat16 as one process with two micro-batches does") {
  const Words amp =
      joined(kTenSteps, {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                         "trainer_config.amp_dtype=bf16"});
  const Workspace two, one;
  const auto job = succeed(launched(two, 2, amp));
  succeed(alone(one, joined(amp, {accumulate(2)})));
  CHECK_THAT(job.out, Catch::Contains("BFloat16 autocast"));
  CHECK(differences(two.snapshot(), one.snapshot()) == Words{});
}

TEST_CASE("two ranks train in float16 and save the state of the loss scaler") {
  const Words amp =
      joined(kTenSteps, {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                         "trainer_config.amp_dtype=fp16"});
  const Workspace place;
  const auto job = succeed(launched(place, 2, amp));
  CHECK_THAT(job.out, Catch::Contains("Half autocast") && Catch::Contains("loss scale"));
  // Steps without overflow are counted, and are updates; the others halve the scale.
  const auto snapshot = inspect(place, place.snapshot());
  const double updates = snapshot.at("optimizer_step");
  const auto& scaler = snapshot.at("grad_scaler");
  CHECK(updates > 0);
  CHECK(scaler.at("scale") == std::ldexp(65536.0, static_cast<int>(updates) - 10));
  CHECK(scaler.at("growth_tracker") <= updates);
  if (updates == 10) CHECK(scaler.at("growth_tracker") == 10);
}

TEST_CASE("a float16 run resumes with the loss scale it had") {
  const Words amp = {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                     "trainer_config.amp_dtype=fp16"};
  const Workspace unbroken, broken;
  succeed(launched(unbroken, 2, joined(amp, {"trainer_config.max_steps=20"})));
  succeed(launched(broken, 2, joined(amp, kTenSteps)));
  succeed(launched(broken, 2, joined(amp, {"trainer_config.max_steps=20"})));
  CHECK(differences(unbroken.snapshot(), broken.snapshot()) == Words{});
}

TEST_CASE("a run that continues on CPUs keeps the precision it has, whatever these compute in") {
  const Words amp = {"trainer_config.use_amp=true", "trainer_config.amp_dtype=fp16"};
  const Words on = {"trainer_config.amp_on_cpu=true"}, off = {"trainer_config.amp_on_cpu=false"};
  const Words two = {"trainer_config.max_steps=2"}, four = {"trainer_config.max_steps=4"};
  for (const Words& choice : {on, off}) {
    INFO(choice.front());
    const Workspace unbroken, broken;
    succeed(alone(unbroken, joined(joined(amp, choice), four)));
    succeed(alone(broken, joined(joined(amp, choice), two)));
    const auto resumed = succeed(alone(broken, joined(amp, four)));
    CHECK_THAT(resumed.out, Catch::Contains(choice == on ? "Half autocast" : "precision float32") &&
                                !Catch::Contains("Changed since the snapshot"));
    CHECK(differences(unbroken.snapshot(), broken.snapshot()) == Words{});
  }
  const Workspace changed;
  succeed(alone(changed, joined(joined(amp, on), two)));
  CHECK_THAT(succeed(alone(changed, joined(joined(amp, off), four))).out,
             Catch::Contains("Changed since the snapshot: trainer_config.use_amp true -> false\n"));
}

// The largest scale there is takes a hundred halvings to get to one that fits.
TEST_CASE("a float16 run whose gradients overflow at every scale ends with one line") {
  const Words amp = {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                     "trainer_config.amp_dtype=fp16"};
  const Workspace place;
  succeed(alone(place, joined(amp, kTenSteps)));
  rewrite_metadata(place.snapshot(), "grad_scaler", R"({"growth_tracker":0,"scale":3e38})");
  const auto run = finish(alone(place, joined(amp, {"trainer_config.max_steps=200"})));
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  CHECK_THAT(run.err, Catch::StartsWith("error: Step 50: the gradients of 40 steps in a row "
                                        "overflowed float16, whatever the loss scale; set "
                                        "trainer_config.amp_dtype=bfloat16"));
}

}  // namespace
}  // namespace ddp::test
