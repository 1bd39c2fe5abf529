#include "trainer/model/blocks/batch_norm.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

constexpr int64_t kChannels = 3;
constexpr int kRanks = 2;

/// Adds up the tensors of kRanks threads, as a collective does those of ranks.
class Together {
 public:
  void sum(const torch::Tensor& tensor) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    total_ = arrived_ == 0 ? tensor.clone() : total_ + tensor;
    if (++arrived_ == kRanks) {
      arrived_ = 0;
      result_ = total_;
      ++round_;
      all_there_.notify_all();
    } else {
      all_there_.wait(lock, [&] { return round_ != round; });
    }
    tensor.copy_(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_there_;
  torch::Tensor total_, result_;
  int arrived_ = 0;
  int round_ = 0;
};

torch::Tensor random_batch(uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn({8, kChannels, 5, 4}, generator) * 3 + 1;
}

/// What a rank has after a step on its part of the batch.
struct NormStep {
  torch::Tensor y, dx, running_mean, running_var;
};

/// The loss weighs each value differently, so that gradients through mean and variance count.
torch::Tensor weighted_sum(const torch::Tensor& y, const torch::Tensor& weights) {
  return (y * weights).sum();
}

NormStep step_of(const torch::Tensor& batch, const torch::Tensor& weights, const SumOverRanks& sum,
                 bool synchronised) {
  BatchNorm norm(kChannels);
  if (synchronised) norm->synchronise(sum, kRanks);
  const auto x = batch.clone().requires_grad_(true);
  const auto y = norm(x);
  weighted_sum(y, weights).backward();
  norm->end_step(sum, torch::zeros({}));
  return {y.detach(), x.grad(), norm->running_mean, norm->running_var};
}

std::vector<NormStep> on_two_ranks(const torch::Tensor& batch, const torch::Tensor& weights,
                                   bool synchronised) {
  Together together;
  std::vector<NormStep> steps(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto sum = [&together](const torch::Tensor& tensor) { together.sum(tensor); };
      const auto part = [&](const torch::Tensor& all) {
        return all.slice(0, 4 * rank, 4 * rank + 4);
      };
      steps[static_cast<std::size_t>(rank)] =
          step_of(part(batch), part(weights), sum, synchronised);
    });
  }
  for (auto& rank : ranks) rank.join();
  return steps;
}

void nothing(const torch::Tensor& /*tensor*/) {}

double largest(const torch::Tensor& difference) { return difference.abs().max().item<double>(); }

}  // namespace

TEST_CASE("synchronised normalisation of two halves is torch's of the whole batch, gradients too") {
  const auto batch = random_batch(1);
  const auto weights = random_batch(2);
  const auto x = batch.clone().requires_grad_(true);
  const auto mean = torch::zeros({kChannels});
  const auto var = torch::ones({kChannels});
  const auto y = torch::batch_norm(x, torch::ones({kChannels}), torch::zeros({kChannels}), mean,
                                   var, /*training=*/true, 0.1, 1e-5, false);
  weighted_sum(y, weights).backward();
  const auto ranks = on_two_ranks(batch, weights, /*synchronised=*/true);
  CHECK(largest(torch::cat({ranks[0].y, ranks[1].y}) - y) < 1e-5);
  CHECK(largest(torch::cat({ranks[0].dx, ranks[1].dx}) - x.grad()) < 1e-4);
  for (const NormStep& rank : ranks) {
    CHECK(largest(rank.running_mean - mean) < 1e-6);
    CHECK(largest(rank.running_var - var) < 1e-5);
  }
}

TEST_CASE("without synchronisation each half is normalised by itself, and statistics are shared") {
  const auto batch = random_batch(1);
  const auto weights = random_batch(2);
  const auto ranks = on_two_ranks(batch, weights, /*synchronised=*/false);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto half = batch.slice(0, 4 * rank, 4 * rank + 4);
    const auto alone = step_of(half, weights.slice(0, 4 * rank, 4 * rank + 4), nothing, false);
    CHECK(torch::equal(ranks[static_cast<std::size_t>(rank)].y, alone.y));
  }
  CHECK(torch::equal(ranks[0].running_mean, ranks[1].running_mean));
  const auto mean = (batch.slice(0, 0, 4).mean(std::vector<int64_t>{0, 2, 3}) +
                     batch.slice(0, 4, 8).mean(std::vector<int64_t>{0, 2, 3})) /
                    2;
  CHECK(largest(ranks[0].running_mean - 0.1 * mean) < 1e-6);
}

TEST_CASE(
    "a step that is discarded, and forgotten micro-batches, leave the statistics as they are") {
  BatchNorm norm(kChannels);
  norm(random_batch(1));
  norm->end_step(nothing, torch::ones({}));
  CHECK(torch::equal(norm->running_mean, torch::zeros({kChannels})));
  CHECK(torch::equal(norm->running_var, torch::ones({kChannels})));
  norm(random_batch(1));
  norm->set_seen({});
  norm->end_step(nothing, torch::zeros({}));
  CHECK(torch::equal(norm->running_mean, torch::zeros({kChannels})));
}

TEST_CASE("in an evaluation the running statistics normalise, and they stay") {
  BatchNorm norm(kChannels);
  norm->eval();
  const auto x = random_batch(3);
  CHECK(largest(norm(x) - x / std::sqrt(1.0 + 1e-5)) < 1e-5);
  norm->end_step(nothing, torch::zeros({}));
  CHECK(torch::equal(norm->running_mean, torch::zeros({kChannels})));
}

}  // namespace ddp::train
