// Byte-pair encoding of one word: merges by rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/bpe/merge_table.h"

namespace ddp::train {

/// A cache of short words and their tokens, so that a frequent word is merged once.
/// A table of fixed size: a word takes the place of another one with the same hash. Holds words of
/// up to 15 bytes with up to 4 tokens, two to a cache line. Single-threaded.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 15;
  static constexpr std::size_t kMostTokens = 4;

  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;  ///< The last byte is the word's length, never 0.
    bool operator==(const Key& other) const { return low == other.low && high == other.high; }
  };
  struct Slot {
    Key key;
    std::array<int32_t, kMostTokens> tokens{-1, -1, -1, -1};  ///< -1 after the last one.

    std::size_t count() const {
      return 1U + static_cast<unsigned>(tokens[1] >= 0) + static_cast<unsigned>(tokens[2] >= 0) +
             static_cast<unsigned>(tokens[3] >= 0);
    }
  };

  WordCache() : slots_(kSlots) {}

  /// Makes the key of the 1 to 15 bytes at `at`; reads no byte past `text`.
  static Key key_of(std::string_view text, std::size_t at, std::size_t bytes) {
    Key key;
    if (text.size() - at >= sizeof key) {
      std::memcpy(&key, text.data() + at, sizeof key);
      key.low &= bytes < 8 ? kMasks[bytes] : ~uint64_t{0};
      key.high &= bytes < 8 ? 0 : kMasks[bytes - 8];
    } else {
      std::memcpy(&key, text.data() + at, bytes);
    }
    key.high |= static_cast<uint64_t>(bytes) << 56U;
    return key;
  }

  /// Where `key` is or would be.
  Slot& slot(const Key& key) {
    const uint64_t mixed = (key.low ^ (key.high * 0xC2B2AE3D27D4EB4FULL)) * 0x9E3779B97F4A7C15ULL;
    return slots_[static_cast<std::size_t>(mixed >> (64U - kSlotBits))];
  }

 private:
  static constexpr unsigned kSlotBits = 16;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
  static constexpr std::array<uint64_t, 8> kMasks = {
      0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF};

  std::vector<Slot> slots_;
};

/// The state of a thread's encoding from word to word. A megabyte or two.
struct BpeScratch {
  WordCache cache;
  std::vector<int32_t> tokens;
  std::vector<RankedMerge> merges;
};

/// Merges `scratch.tokens` until no pair is left. The pair of lowest rank is merged first, among
/// equals the leftmost. Sennrich, Haddow, Birch: "Neural Machine Translation of Rare Words with
/// Subword Units", 2016.
void merge_pairs(const MergeTable& merges, BpeScratch& scratch);

/// Appends the tokens of the word of `bytes` bytes at `at`, from the cache if it has them.
/// `encode_word` appends those of a word.
template <typename EncodeWord>
void encode_cached(std::string_view text, std::size_t at, std::size_t bytes, BpeScratch& scratch,
                   std::vector<int32_t>& out, const EncodeWord& encode_word) {
  if (bytes > WordCache::kMostBytes) return encode_word(text.substr(at, bytes));
  const std::size_t before = out.size();
  const WordCache::Key key = WordCache::key_of(text, at, bytes);
  WordCache::Slot& slot = scratch.cache.slot(key);
  if (slot.key == key) {
    out.insert(out.end(), slot.tokens.begin(), slot.tokens.end());
    out.resize(before + slot.count());
    return;
  }
  encode_word(text.substr(at, bytes));
  const std::size_t count = out.size() - before;
  if (count == 0 || count > WordCache::kMostTokens) return;
  slot = {key, {-1, -1, -1, -1}};
  std::copy_n(out.end() - static_cast<std::ptrdiff_t>(count), count, slot.tokens.begin());
}

}  // namespace ddp::train
