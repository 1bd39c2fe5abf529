#include "trainer/data/distributed_sampler.h"

#include <set>
#include <vector>
#include "tests/support/catch.h"

#include "trainer/data/data_loader.h"
#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/token_windows.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::vector<int64_t> all_of(const Permutation& order, int64_t size) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(order(i));
  return values;
}

// Token i of the text is the number i, so a batch shows which samples it holds.
MemoryTokens counting_text(std::size_t size) {
  std::vector<int32_t> tokens(size);
  for (std::size_t i = 0; i < size; ++i) tokens[i] = static_cast<int32_t>(i);
  return {std::move(tokens), "counting"};
}

std::vector<int64_t> first_tokens(const Batch& batch) {
  const auto column = batch[kInputs].select(1, 0).contiguous();
  return {column.const_data_ptr<int64_t>(), column.const_data_ptr<int64_t>() + column.numel()};
}

}  // namespace

TEST_CASE("the order of an epoch is a permutation, for any size") {
  for (const int64_t size : {1, 2, 3, 7, 64, 65, 1000, 4097}) {
    const auto values = all_of(Permutation(size, 99), size);
    const std::set<int64_t> distinct(values.begin(), values.end());
    CHECK(distinct.size() == static_cast<std::size_t>(size));
    CHECK(*distinct.begin() == 0);
    CHECK(*distinct.rbegin() == size - 1);
  }
}

TEST_CASE("another epoch and another seed give another order") {
  const DistributedSampler sampler(1000, 10, 1, 1);
  const DistributedSampler other(1000, 10, 1, 2);
  CHECK(all_of(sampler.order(0), 1000) != all_of(sampler.order(1), 1000));
  CHECK(all_of(sampler.order(0), 1000) != all_of(other.order(0), 1000));
  CHECK(all_of(sampler.order(3), 1000) ==
        all_of(DistributedSampler(1000, 10, 1, 1).order(3), 1000));
}

TEST_CASE("the order looks random: neighbours are spread and the middle is not special") {
  constexpr int64_t kSize = 10'000;
  const auto values = all_of(Permutation(kSize, 4), kSize);
  double distance = 0;
  int64_t upper_half_first = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    distance += std::abs(static_cast<double>(values[i + 1] - values[i]));
  }
  for (std::size_t i = 0; i < values.size() / 2; ++i)
    upper_half_first += values[i] >= kSize / 2 ? 1 : 0;
  CHECK(distance / kSize == Approx(kSize / 3.0).epsilon(0.05));
  CHECK(static_cast<double>(upper_half_first) == Approx(kSize / 4.0).epsilon(0.05));
}

TEST_CASE("a cursor moves by whole global batches and never into a tail") {
  const DistributedSampler sampler(103, 5, 4, 1);
  CHECK(sampler.steps_per_epoch() == 5);
  DataCursor cursor;
  for (int i = 0; i < 4; ++i) cursor = sampler.next(cursor);
  CHECK(cursor == DataCursor{0, 80});
  CHECK(sampler.next(cursor) == DataCursor{1, 0});
  CHECK(sampler.normalized({0, 84}) == DataCursor{1, 0});
}

TEST_CASE("a step that needs more samples than there are is refused with the key to change") {
  CHECK_THROWS_AS(DistributedSampler(19, 5, 4, 1), UserError);
  CHECK_THROWS_WITH(DistributedSampler(19, 5, 4, 1),
                    Catch::EndsWith("use trainer_config.batch_size=4, with "
                                    "trainer_config.global_batch_size=16 if that is set, or more "
                                    "text"));
}

TEST_CASE("2 ranks and 1 process with 2 micro-batches see the same micro-batches") {
  const auto text = counting_text(400);
  const TokenWindows windows(text, {0, text.size()}, {8}, 3);
  const DistributedSampler sampler(windows.size(), 4, 2, 11);
  DataLoader one(windows, sampler, {}, {4, 2, 0, 1, 0, false});
  DataLoader rank0(windows, sampler, {}, {4, 1, 0, 2, 0, false});
  DataLoader rank1(windows, sampler, {}, {4, 1, 1, 2, 0, false});
  for (int step = 0; step < 40; ++step) {  // across several epochs
    CHECK(first_tokens(one.next()) == first_tokens(rank0.next()));
    CHECK(first_tokens(one.next()) == first_tokens(rank1.next()));
  }
}

TEST_CASE("each epoch uses each sample at most once and all but the tail") {
  const auto text = counting_text(215);
  const TokenWindows windows(text, {0, text.size()}, {8}, 2);
  const int64_t size = windows.size();
  const DistributedSampler sampler(size, 5, 2, 3);
  DataLoader loader(windows, sampler, {}, {5, 2, 0, 1, 2, false});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 2 * sampler.steps_per_epoch(); ++i) {
      for (const int64_t start : first_tokens(loader.next())) CHECK(seen.insert(start).second);
    }
    CHECK(static_cast<int64_t>(seen.size()) == sampler.steps_per_epoch() * 10);
    CHECK(size - static_cast<int64_t>(seen.size()) < 10);
  }
}

TEST_CASE(
    "loader threads deliver the same batches in the same order as no threads, from any start") {
  const auto text = counting_text(1000);
  const TokenWindows windows(text, {0, text.size()}, {16}, 1);
  const DistributedSampler sampler(windows.size(), 4, 3, 5);
  const DataCursor start{2, 24};
  DataLoader plain(windows, sampler, start, {4, 3, 0, 1, 0, false});
  DataLoader threaded(windows, sampler, start, {4, 3, 0, 1, 3, false});
  for (int i = 0; i < 300; ++i) {
    const Batch a = plain.next();
    const Batch b = threaded.next();
    CHECK(torch::equal(a[kInputs], b[kInputs]));
    CHECK(torch::equal(a[kTargets], b[kTargets]));
    CHECK(torch::equal(a[kInputs] + 1, a[kTargets]));
  }
}

TEST_CASE("a loader that is dropped with batches in flight ends its threads") {
  const auto text = counting_text(1000);
  const TokenWindows windows(text, {0, text.size()}, {16}, 1);
  const DistributedSampler sampler(windows.size(), 4, 1, 5);
  for (int i = 0; i < 20; ++i) DataLoader(windows, sampler, {}, {4, 1, 0, 1, 4, false}).next();
  SUCCEED();
}

TEST_CASE("evaluation windows hold every token but the first as a target exactly once") {
  for (const std::size_t size : {2U, 8U, 9U, 10U, 33U}) {
    const auto text = counting_text(size);
    const TokenWindows windows(text, {0, text.size()}, {8}, std::nullopt);
    const Batch batch = batch_of(windows, 0, windows.size());
    const auto targets = batch[kTargets].masked_select(batch[kTargets].ge(0));
    CHECK(torch::equal(targets, torch::arange(1, static_cast<int64_t>(size))));
    CHECK(batch.target_count == static_cast<int64_t>(size) - 1);
  }
}

}  // namespace ddp::train
