// Windows of several sources: shares, passes, and the positions of documents.
#include <map>
#include <numeric>
#include <set>

#include "tests/support/catch.h"

#include "trainer/data/mixed_samples.h"
#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/token_windows.h"

namespace ddp::train {
namespace {

using MixedWindows = MixedSamples<TokenWindows>;

MemoryTokens numbers(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return {tokens, std::to_string(first)};
}

/// The first token of each sample of an epoch.
std::vector<int64_t> drawn(const MixedWindows& mixed, int64_t epoch) {
  std::vector<int64_t> samples(static_cast<std::size_t>(mixed.size()));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  const Batch batch = mixed.collate({samples, epoch, false});
  std::vector<int64_t> first;
  for (int64_t i = 0; i < mixed.size(); ++i) first.push_back(batch[kInputs][i][0].item<int64_t>());
  return first;
}

}  // namespace

TEST_CASE("each source has its share of an epoch, and repeats nothing before it was gone through") {
  const auto large = numbers(0, 81), small = numbers(1000, 13);
  const TokenWindows a(large, {0, 81}, {4}, 4), b(small, {0, 13}, {4}, 4);  // 20 and 3 windows
  const MixedWindows mixed({{&a, 1.0}, {&b, 3.0}}, 7);
  REQUIRE(mixed.size() == 23);
  CHECK(mixed.samples_of(0) == 6);
  CHECK(mixed.samples_of(1) == 17);
  std::map<int64_t, int> times;
  int64_t of_small = 0;
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const auto first = drawn(mixed, epoch);
    orders.insert(first);
    CHECK(first == drawn(mixed, epoch));
    for (const int64_t token : first) {
      of_small += token >= 1000 ? 1 : 0;
      ++times[token];
    }
  }
  CHECK(orders.size() == 10);
  CHECK(of_small == 170);
  CHECK(times.size() == 23);
  for (const auto& [token, count] : times) {  // 60 draws of 20 windows, 170 of 3
    INFO(token);
    CHECK(count >= (token < 1000 ? 3 : 56));
    CHECK(count <= (token < 1000 ? 3 : 57));
  }
}

TEST_CASE("the order of sources depends on the seed, and weights are part of the fingerprint") {
  const auto one = numbers(0, 81), other = numbers(1000, 81);
  const TokenWindows a(one, {0, 81}, {4}, 4), b(other, {0, 81}, {4}, 4);
  const MixedWindows mixed({{&a, 1.0}, {&b, 1.0}}, 7), again({{&a, 1.0}, {&b, 1.0}}, 7),
      seeded({{&a, 1.0}, {&b, 1.0}}, 8), weighted({{&a, 2.0}, {&b, 1.0}}, 7);
  CHECK(drawn(mixed, 0) == drawn(again, 0));
  CHECK(drawn(mixed, 0) != drawn(seeded, 0));
  CHECK(mixed.fingerprint() == again.fingerprint());
  CHECK(mixed.fingerprint() != weighted.fingerprint());
  const MixedWindows only_one({{&a, 1.0}, {&b, 0.0}}, 7);
  for (const int64_t token : drawn(only_one, 0)) CHECK(token < 1000);
}

TEST_CASE("positions start anew behind each end of a document") {
  const MemoryTokens tokens({5, 6, 0, 7, 0, 0, 8, 9, 1}, "x");
  const TokenWindows windows(tokens, {0, 9}, {4, 0}, 2);
  const std::vector<int64_t> samples = {0, 1, 2};
  const Batch batch = windows.collate({samples, 0, false});
  CHECK(torch::equal(batch[kPositions],
                     torch::tensor({{0, 1, 2, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}, torch::kInt64)));
  const TokenWindows evaluation(tokens, {0, 7}, {4, 0}, std::nullopt);
  const std::vector<int64_t> last = {1};
  const Batch padded = evaluation.collate({last, 0, false});
  CHECK(torch::equal(padded[kTargets], torch::tensor({{0, 8, -1, -1}}, torch::kInt64)));
  CHECK(padded[kPositions][0][1].item<int64_t>() == 0);
  const TokenWindows plain(tokens, {0, 9}, {4}, 2);
  CHECK_FALSE(plain.collate({samples, 0, false}).find(kPositions).defined());
}

}  // namespace ddp::train
