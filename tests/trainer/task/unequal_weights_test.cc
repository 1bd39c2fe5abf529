// Losses over unequal numbers of targets: a step is the mean over all of them, on however many
// ranks and in however many micro-batches.
#include "tests/trainer/task/unequal_task.h"

#include <cstdlib>
#include <sstream>

#include "tests/support/catch.h"

#include "tests/trainer/parallel/probe_output.h"
#include "trainer/config/config.h"
#include "trainer/runtime/seed.h"

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
      inputs.push_back(one[kInputs].to(torch::kFloat64));
      targets.push_back(one[kTargets].to(torch::kFloat64));
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

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
  return numbers;
}

}  // namespace

TEST_CASE("losses of unequal weight give the step of the whole batch, not a mean of means") {
  ProcessGroup alone;
  const test::UnequalRun run = test::train_unequal(alone, kSteps);
  CHECK(run.without_targets > 0);
  const test::UnequalRun expected = whole_batches();
  for (int step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    CHECK(run.losses[static_cast<std::size_t>(step)] ==
          Approx(expected.losses[static_cast<std::size_t>(step)]).epsilon(1e-6));
  }
  CHECK(torch::allclose(run.weights.to(torch::kFloat64), expected.weights, 1e-6, 1e-7));
}

TEST_CASE("ranks whose targets are of unequal number make the steps of one process") {
  const std::vector<double> one = numbers_of(test::probe(1, "unequal"));
  REQUIRE(one.size() == kSteps + test::kFeatures * test::kOutputs);
  // With 4 ranks, two have two micro-batches and two have one.
  for (const int ranks : {2, 4}) {
    const std::vector<double> several = numbers_of(test::probe(ranks, "unequal"));
    REQUIRE(several.size() == one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      INFO(ranks << " ranks, number " << i);
      CHECK(several[i] == Approx(one[i]).epsilon(1e-6));
    }
  }
}

}  // namespace ddp::train
