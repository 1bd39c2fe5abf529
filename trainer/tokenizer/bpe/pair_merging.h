// Byte-pair encoding of one word: merges by rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/bpe/merge_table.h"
#include "trainer/tokenizer/bpe/word_cache.h"

namespace ddp::train {

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
