// The merges of a byte-pair encoding, keyed by the two tokens that they join.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// Rank in the upper half, token in the lower: the smallest one is applied first.
using RankedMerge = uint64_t;
constexpr RankedMerge kNoMerge = std::numeric_limits<RankedMerge>::max();
constexpr int32_t merged_token(RankedMerge merge) {
  return static_cast<int32_t>(merge & 0xFFFFFFFFU);
}

/// Immutable hash table with open addressing; at most half full.
class MergeTable {
 public:
  /// The last of two merges of the same pair counts, as in `tokenizers`.
  explicit MergeTable(const std::vector<Merge>& merges);

  RankedMerge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (std::size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return slots_[at].merge;
      if (slots_[at].key == kEmpty) return kNoMerge;
    }
  }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    RankedMerge merge = kNoMerge;
  };
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();

  static uint64_t key_of(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32U) |
           static_cast<uint32_t>(right);
  }
  std::size_t slot_of(uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  unsigned shift_ = 0;
};

}  // namespace ddp::train
