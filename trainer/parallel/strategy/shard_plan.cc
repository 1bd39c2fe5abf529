#include "trainer/parallel/strategy/shard_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace ddp::train {
namespace {

/// What is never divided between ranks: a block, or a whole parameter.
using Unit = Shard;
using Units = std::vector<Unit>;

int64_t rounded_up(int64_t elements) {
  return (elements + kNormBlock - 1) / kNormBlock * kNormBlock;
}

Units units_of(const std::vector<ShardedSize>& parameters) {
  Units units;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const auto& [elements, whole] = parameters[i];
    const int64_t step = whole ? std::max<int64_t>(elements, 1) : kShardBlock;
    for (int64_t begin = 0; begin < elements; begin += step)
      units.push_back({i, begin, std::min(elements, begin + step)});
  }
  return units;
}

int64_t total_of(const Units& units) {
  return std::accumulate(units.begin(), units.end(), int64_t{0},
                         [](int64_t sum, const Unit& unit) { return sum + unit.size(); });
}

int64_t row_of(const std::vector<Shard>& shards) {
  return std::accumulate(shards.begin(), shards.end(), int64_t{0},
                         [](int64_t sum, const Shard& shard) { return sum + padded_size(shard); });
}

void append(std::vector<Shard>& shards, const Unit& unit) {
  const bool goes_on = !shards.empty() && shards.back().parameter == unit.parameter &&
                       shards.back().end == unit.begin;
  if (goes_on)
    shards.back().end = unit.end;
  else
    shards.push_back(unit);
}

/// Packs units into buckets, those that are whole into others than blocks: their tables have rows
/// of unequal use, and a few of them are to be shared among all ranks.
class Packer {
 public:
  Packer(int ranks, int64_t bucket_elements, int64_t first_bucket_elements)
      : loads_(static_cast<std::size_t>(ranks), 0),
        bucket_elements_(bucket_elements),
        first_bucket_elements_(first_bucket_elements) {}

  void add_block(const Unit& unit) {
    const int64_t limit = buckets_.empty() ? first_bucket_elements_ : bucket_elements_;
    if (!blocks_.empty() && total_of_blocks_ + unit.size() > limit) close_blocks();
    blocks_.push_back(unit);
    total_of_blocks_ += unit.size();
  }
  void add_whole(const Unit& unit) {
    if (wholes_.size() >= loads_.size() && total_of(wholes_) + unit.size() > bucket_elements_)
      close_wholes();
    wholes_.push_back(unit);
  }
  std::vector<ShardBucket> packed() {
    if (!wholes_.empty()) close_wholes();
    if (!blocks_.empty()) close_blocks();
    return std::move(buckets_);
  }

 private:
  // A block goes to the rank in whose share its middle lies, so that neighbours stay together.
  void close_blocks() {
    const auto ranks = static_cast<int64_t>(loads_.size());
    if (blocks_.size() < loads_.size()) {
      deal_to_least_loaded(blocks_);
    } else {
      ShardBucket bucket = empty_bucket();
      int64_t before = 0;
      for (const Unit& unit : blocks_) {
        const int64_t rank = (2 * before + unit.size()) * ranks / (2 * total_of_blocks_);
        give(bucket, static_cast<std::size_t>(std::min(rank, ranks - 1)), unit);
        before += unit.size();
      }
      finish(std::move(bucket));
    }
    blocks_.clear();
    total_of_blocks_ = 0;
  }
  void close_wholes() {
    std::stable_sort(wholes_.begin(), wholes_.end(),
                     [](const Unit& a, const Unit& b) { return a.size() > b.size(); });
    deal_to_least_loaded(wholes_);
    wholes_.clear();
  }
  void deal_to_least_loaded(const Units& units) {
    ShardBucket bucket = empty_bucket();
    for (const Unit& unit : units) {
      const auto least = std::min_element(loads_.begin(), loads_.end());
      give(bucket, static_cast<std::size_t>(least - loads_.begin()), unit);
    }
    finish(std::move(bucket));
  }
  ShardBucket empty_bucket() const { return {std::vector<std::vector<Shard>>(loads_.size()), 0}; }
  void give(ShardBucket& bucket, std::size_t rank, const Unit& unit) {
    append(bucket.of_rank[rank], unit);
    loads_[rank] += unit.size();
  }
  void finish(ShardBucket bucket) {
    for (const auto& shards : bucket.of_rank) bucket.row = std::max(bucket.row, row_of(shards));
    buckets_.push_back(std::move(bucket));
  }

  std::vector<int64_t> loads_;  // elements that each rank holds so far
  const int64_t bucket_elements_;
  const int64_t first_bucket_elements_;
  Units blocks_;
  int64_t total_of_blocks_ = 0;
  Units wholes_;
  std::vector<ShardBucket> buckets_;
};

}  // namespace

int64_t padded_size(const Shard& shard) { return rounded_up(shard.size()); }

std::vector<ShardBucket> plan_shards(const std::vector<ShardedSize>& parameters, int ranks,
                                     int64_t bucket_elements, int64_t first_bucket_elements) {
  Packer packer(ranks, bucket_elements, first_bucket_elements);
  for (const Unit& unit : units_of(parameters)) {
    if (parameters[unit.parameter].whole)
      packer.add_whole(unit);
    else
      packer.add_block(unit);
  }
  return packer.packed();
}

ShardBucket plan_unit(const std::vector<ShardedSize>& parameters,
                      const std::vector<std::size_t>& members, int ranks) {
  const auto size_of = [&](std::size_t i) { return parameters[i].elements; };
  if (std::any_of(members.begin(), members.end(), [&](auto i) { return parameters[i].whole; })) {
    constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
    Packer packer(ranks, kNoLimit, kNoLimit);
    for (const std::size_t i : members) packer.add_whole({i, 0, size_of(i)});
    return packer.packed().front();
  }
  int64_t total = 0;
  for (const std::size_t i : members) total += rounded_up(size_of(i));
  ShardBucket bucket{std::vector<std::vector<Shard>>(static_cast<std::size_t>(ranks)),
                     rounded_up((total + ranks - 1) / ranks)};
  int64_t at = 0;
  for (const std::size_t i : members) {
    for (int64_t begin = 0; begin < size_of(i);) {
      const int64_t rank = at / bucket.row;
      const int64_t end = std::min(size_of(i), begin + (rank + 1) * bucket.row - at);
      bucket.of_rank[static_cast<std::size_t>(rank)].push_back({i, begin, end});
      at += rounded_up(end - begin);
      begin = end;
    }
  }
  return bucket;
}

}  // namespace ddp::train
