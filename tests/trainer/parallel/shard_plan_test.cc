// Who holds which part of the trained parameters.
#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"

#include "trainer/parallel/strategy/shard_plan.h"

namespace ddp::train {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

/// For each parameter how often each block of it is held, by its first element.
std::vector<std::vector<int>> cover(const std::vector<ShardedSize>& parameters,
                                    const std::vector<ShardBucket>& buckets) {
  std::vector<std::vector<int>> held;
  for (const auto& [elements, whole] : parameters)
    held.emplace_back(static_cast<std::size_t>(elements), 0);
  for (const auto& bucket : buckets) {
    for (const auto& shards : bucket.of_rank) {
      for (const Shard& shard : shards) {
        for (int64_t i = shard.begin; i < shard.end; ++i)
          ++held[shard.parameter][static_cast<std::size_t>(i)];
      }
    }
  }
  return held;
}

int64_t held_by(const std::vector<ShardBucket>& buckets, std::size_t rank) {
  int64_t total = 0;
  for (const auto& bucket : buckets) {
    for (const Shard& shard : bucket.of_rank[rank]) total += shard.size();
  }
  return total;
}

}  // namespace

TEST_CASE("every element of every parameter is held once, and cuts are at blocks") {
  const std::vector<ShardedSize> parameters = {{1, false},      {15, false},      {17, false},
                                               {16'384, false}, {100'003, false}, {70'000, true},
                                               {0, false},      {50'257, false},  {5, true}};
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t bucket : {int64_t{1}, int64_t{40'000}, kMany}) {
      INFO(ranks << " ranks, buckets of " << bucket);
      const auto buckets = plan_shards(parameters, ranks, bucket, std::min<int64_t>(bucket, 1000));
      for (const auto& held : cover(parameters, buckets))
        CHECK(std::all_of(held.begin(), held.end(), [](int times) { return times == 1; }));
      for (const auto& each : buckets) {
        REQUIRE(each.of_rank.size() == static_cast<std::size_t>(ranks));
        for (const auto& shards : each.of_rank) {
          int64_t row = 0;
          for (const Shard& shard : shards) {
            const auto& [elements, whole] = parameters[shard.parameter];
            CHECK(shard.begin % kShardBlock == 0);
            CHECK((shard.end % kShardBlock == 0 || shard.end == elements));
            if (whole) CHECK(shard.size() == elements);
            row += padded_size(shard);
          }
          CHECK(row <= each.row);
        }
      }
    }
  }
}

TEST_CASE("the parameters of a unit are held once, and each lies in one piece of its table") {
  const std::vector<ShardedSize> parameters = {{1, false}, {1024, false},   {100'003, false},
                                               {0, false}, {70'000, false}, {5'000, true}};
  const std::vector<std::vector<std::size_t>> units = {{0, 1, 2, 3, 4}, {1, 2, 5}};
  for (const int ranks : {2, 3, 8}) {
    for (const auto& members : units) {
      INFO(ranks << " ranks, " << members.size() << " parameters");
      const auto bucket = plan_unit(parameters, members, ranks);
      REQUIRE(bucket.of_rank.size() == static_cast<std::size_t>(ranks));
      CHECK(bucket.row % kNormBlock == 0);
      std::vector<int64_t> ends(parameters.size(), -1), held(parameters.size(), 0);
      for (std::size_t rank = 0; rank < bucket.of_rank.size(); ++rank) {
        int64_t at = static_cast<int64_t>(rank) * bucket.row;
        for (const Shard& shard : bucket.of_rank[rank]) {
          if (shard.begin > 0) CHECK(at == ends[shard.parameter]);
          CHECK(shard.begin == held[shard.parameter]);
          CHECK(shard.begin % kNormBlock == 0);
          ends[shard.parameter] = at + shard.size();
          held[shard.parameter] = shard.end;
          at += padded_size(shard);
        }
        CHECK(at <= static_cast<int64_t>(rank + 1) * bucket.row);
      }
      for (const std::size_t i : members) CHECK(held[i] == parameters[i].elements);
    }
  }
}

TEST_CASE("the ranks' shares of a model differ by a block for each bucket at most") {
  const std::vector<ShardedSize> gpt2 = {{50'257 * 768, false}, {1024 * 768, false},
                                         {768, false},          {768 * 2304, false},
                                         {2304, false},         {768 * 3072, false}};
  for (const int ranks : {2, 3, 8}) {
    const auto buckets = plan_shards(gpt2, ranks, 25 * 1024 * 256, 1024 * 256);
    int64_t total = 0;
    for (const auto& [elements, whole] : gpt2) total += elements;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t held = held_by(buckets, static_cast<std::size_t>(rank));
      CHECK(std::abs(held - total / ranks) <= kShardBlock * static_cast<int64_t>(buckets.size()));
    }
  }
}

TEST_CASE("whole matrices are shared among the ranks, however small the buckets") {
  std::vector<ShardedSize> matrices;
  for (int block = 0; block < 12; ++block) {
    for (const int64_t width : {3, 1, 4, 4}) matrices.push_back({768 * 768 * width, true});
  }
  for (const int ranks : {2, 3, 8}) {
    for (const int64_t bucket : {int64_t{1}, int64_t{25} * 1024 * 256}) {
      const auto buckets = plan_shards(matrices, ranks, bucket, 1);
      int64_t least = kMany, most = 0, tables = 0, total = 0;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        const int64_t held = held_by(buckets, rank);
        least = std::min(least, held);
        most = std::max(most, held);
        total += held;
      }
      for (const auto& each : buckets) tables += ranks * each.row;
      CHECK(most - least <= 768 * 768 * 4);
      CHECK(tables <= total * 2);
    }
  }
}

TEST_CASE("small buckets of single blocks are shared among the ranks, too") {
  const std::vector<ShardedSize> parameters(7, {10 * kShardBlock, false});
  const auto buckets = plan_shards(parameters, 4, 1, 1);
  CHECK(buckets.size() == 70);
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(std::abs(held_by(buckets, rank) - 70 * kShardBlock / 4) <= kShardBlock);
}

TEST_CASE("buckets go from the last parameter to the first and are as large as allowed") {
  const std::vector<ShardedSize> parameters(10, {kShardBlock, false});
  const auto buckets = plan_shards(parameters, 2, 4 * kShardBlock, kShardBlock);
  std::vector<std::size_t> order;
  std::vector<int64_t> sizes;
  for (const auto& bucket : buckets) {
    int64_t size = 0;
    for (const auto& shards : bucket.of_rank) {
      for (const Shard& shard : shards) {
        order.push_back(shard.parameter);
        size += shard.size();
      }
    }
    sizes.push_back(size / kShardBlock);
  }
  CHECK(order == std::vector<std::size_t>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(sizes == std::vector<int64_t>{1, 4, 4, 1});
}

}  // namespace ddp::train
