// Who holds which part of the trained parameters under ZeRO: a pure function of their sizes, the
// same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::train {

/// Shards are cut at multiples of so many elements from a parameter's beginning: each block of the
/// gradient norm is then summed by one rank, and fused optimizers, whose rounding depends on an
/// element's place in its vector register, compute what they compute on the whole parameter.
inline constexpr int64_t kNormBlock = 1024;

/// The blocks of a tensor; the last one may be shorter.
constexpr int64_t norm_blocks(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

/// Elements of a block, which plan_shards() does not cut.
inline constexpr int64_t kShardBlock = 16 * kNormBlock;

struct ShardedSize {
  int64_t elements = 0;
  bool whole = false;  ///< Belongs to one rank, however large it is.
};

/// The elements [begin, end) of a parameter.
struct Shard {
  std::size_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Shard&) const = default;
};

/// Shards that travel together, as a table with one row for each rank. A row holds the shards of
/// its rank in sequence, each at a multiple of kNormBlock elements.
struct ShardBucket {
  std::vector<std::vector<Shard>> of_rank;
  int64_t row = 0;  ///< Elements of a row; shorter ones are padded.
};

/// The elements that a shard takes up in a row.
int64_t padded_size(const Shard& shard);

/// Each element of each parameter is in exactly one shard. Buckets hold up to `bucket_elements`,
/// the first one `first_bucket_elements`, in the order in which a backward pass computes gradients:
/// from the last parameter to the first. A parameter that is larger goes into several, and the
/// ranks have equal shares of each bucket, but for about a block. Whole parameters have buckets of
/// their own, which hold one for each rank at least, where there are as many.
std::vector<ShardBucket> plan_shards(const std::vector<ShardedSize>& parameters, int ranks,
                                     int64_t bucket_elements, int64_t first_bucket_elements);

/// All of the `members` among `parameters` in one bucket, in whose table each is contiguous: it can
/// be used there. Rows are equal but for the end of the last ones. If a member is whole, all of
/// them are treated as such, and shared out by size.
ShardBucket plan_unit(const std::vector<ShardedSize>& parameters,
                      const std::vector<std::size_t>& members, int ranks);

}  // namespace ddp::train
