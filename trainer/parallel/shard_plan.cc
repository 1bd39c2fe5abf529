#include "trainer/parallel/shard_plan.h"

#include <algorithm>

namespace ddp::train {
namespace {

/// What is never divided between ranks: a block, or a whole parameter.
using Unit = Shard;
using Units = std::vector<Unit>;

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

std::vector<Units> divided(const Units& units, int64_t bucket_elements, int64_t first) {
  std::vector<Units> buckets;
  int64_t held = 0;
  for (const Unit& unit : units) {
    const int64_t limit = buckets.size() > 1 ? bucket_elements : first;
    if (buckets.empty() || held + unit.size() > limit) {
      buckets.emplace_back();
      held = 0;
    }
    buckets.back().push_back(unit);
    held += unit.size();
  }
  return buckets;
}

void append(std::vector<Shard>& shards, const Unit& unit) {
  const bool goes_on = !shards.empty() && shards.back().parameter == unit.parameter &&
                       shards.back().end == unit.begin;
  if (goes_on)
    shards.back().end = unit.end;
  else
    shards.push_back(unit);
}

// A unit goes to the rank in whose share its middle lies.
ShardBucket dealt(const Units& units, int ranks) {
  int64_t total = 0;
  for (const Unit& unit : units) total += unit.size();
  ShardBucket bucket;
  bucket.of_rank.resize(static_cast<std::size_t>(ranks));
  int64_t before = 0;
  for (const Unit& unit : units) {
    const int64_t rank = (2 * before + unit.size()) * ranks / (2 * total);
    append(bucket.of_rank[static_cast<std::size_t>(std::min<int64_t>(rank, ranks - 1))], unit);
    before += unit.size();
  }
  for (const auto& shards : bucket.of_rank) {
    int64_t row = 0;
    for (const Shard& shard : shards) row += padded_size(shard);
    bucket.row = std::max(bucket.row, row);
  }
  return bucket;
}

}  // namespace

int64_t padded_size(const Shard& shard) {
  constexpr int64_t kLine = 16;  // elements: 64 bytes of float32
  return (shard.size() + kLine - 1) / kLine * kLine;
}

std::vector<ShardBucket> plan_shards(const std::vector<ShardedSize>& parameters, int ranks,
                                     int64_t bucket_elements, int64_t first_bucket_elements) {
  std::vector<ShardBucket> buckets;
  for (const Units& units : divided(units_of(parameters), bucket_elements, first_bucket_elements))
    buckets.push_back(dealt(units, ranks));
  return buckets;
}

}  // namespace ddp::train
