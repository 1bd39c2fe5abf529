// Losses over unequal numbers of targets: a step is the mean over all of them, on however many
// ranks and in however many micro-batches.
#include "tests/trainer/unequal_task.h"

#include "tests/support/catch.h"

#include "tests/trainer/probe_output.h"

namespace ddp::train {
namespace {

constexpr int kSteps = 6;  // an epoch has 4

/// The same descent over whole global batches at once, by torch alone.
test::UnequalRun whole_batches() {
  const Config config = test::unequal_config();
  const test::UnequalSamples samples;
  test::UnequalTask initial;
  initial.build_model(torch::kCPU, init_seed(static_cast<uint64_t>(config.trainer.seed)));
  auto weights = initial.parameters().front().tensor.detach().to(torch::kFloat64);
  const DistributedSampler sampler(samples.size(), 2, 6,
                                   static_cast<uint64_t>(config.trainer.seed));
  test::UnequalRun run;
  DataCursor cursor;
  for (int step = 0; step < kSteps; ++step, cursor = sampler.next(cursor)) {
    const Permutation order = sampler.order(cursor.epoch);
    std::vector<torch::Tensor> inputs;
    std::vector<torch::Tensor> targets;
    for (int64_t i = 0; i < sampler.global_batch(); ++i) {
      const Batch one = batch_of(samples, order(cursor.position + i), 1);
      inputs.push_back(one.inputs.to(torch::kFloat64));
      targets.push_back(one.targets.to(torch::kFloat64));
    }
    const auto all_targets = torch::cat(targets);
    const auto there = ~all_targets.isnan();
    auto leaf = weights.clone().set_requires_grad(true);
    const auto errors =
        (torch::cat(inputs).matmul(leaf.t()) - all_targets).masked_select(there).square();
    errors.mean().backward();
    run.losses.push_back(errors.mean().item<double>());
    weights = weights - config.optimizer.learning_rate * leaf.grad();
  }
  run.weights = weights;
  return run;
}

}  // namespace

TEST_CASE("losses of unequal weight give the step of the whole batch, not a mean of means") {
  ProcessGroup alone;
  const test::UnequalRun run = test::train_unequal(alone, kSteps);
  const test::UnequalRun expected = whole_batches();
  for (int step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    CHECK(run.losses[static_cast<std::size_t>(step)] ==
          Approx(expected.losses[static_cast<std::size_t>(step)]).epsilon(1e-6));
  }
  CHECK(torch::allclose(run.weights.to(torch::kFloat64), expected.weights, 1e-6, 1e-7));
}

TEST_CASE("ranks whose targets are of unequal number make the steps of one process") {
  const std::string one = test::probe(1, "unequal");
  CHECK(one.find("0x1.") != std::string::npos);
  CHECK(test::probe(2, "unequal") == one);
  CHECK(test::probe(4, "unequal") == one);  // two ranks have two micro-batches, two have one
}

}  // namespace ddp::train
