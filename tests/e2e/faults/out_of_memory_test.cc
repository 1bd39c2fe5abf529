// Memory that there is not ends a job for good, with numbers.
#include "tests/support/catch.h"

#include "tests/e2e/job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

constexpr int kFinal = 76;

/// Each process of it may map so many MiB at most.
ChildOptions within(int mebibytes, const ChildOptions& options) {
  return in_shell("ulimit -v " + std::to_string(1024 * mebibytes) + "; exec \"$@\"", options);
}

}  // namespace

TEST_CASE("a batch that no memory holds is said with what to change, and is not tried again") {
  const Workspace place;
  // Attention scores of 600 x 2 x 1000 x 1000 numbers: 4.8 GB in one piece.
  const Words too_much = {"data_config.block_size=1000", "data_config.stride=1",
                          "trainer_config.batch_size=600"};
  const auto run = finish(within(4500, launched(place, 2, too_much, {"--max_restarts=3"})));
  INFO(run.out << run.err);
  CHECK(run.exit == kFinal);
  CHECK_THAT(
      run.err,
      Contains("out of memory on the CPU: 4.80GB more were requested; a rank takes about ") &&
          Contains("activations ") && Contains("optimizer ") &&
          Contains("gpt_config.activation_checkpointing=true (") &&
          Contains("trainer_config.batch_size="));
  CHECK_THAT(run.err, !Contains("; restart "));
  CHECK(order_of_steps(run.out).empty());
}

TEST_CASE("a model that no memory holds is said so, too") {
  const Workspace place;
  const auto run = finish(
      within(64 << 10, launched(place, 2, {"gpt_config.n_embd=400000"}, {"--max_restarts=3"})));
  INFO(run.out << run.err);
  CHECK(run.exit == kFinal);
  CHECK_THAT(run.err, Contains("out of memory on the CPU: 1920.00GB more were requested") &&
                          Contains("or take a smaller model") && Contains("weights 15360.17GB"));
}

}  // namespace ddp::test
