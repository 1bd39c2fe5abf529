// Byte-pair encoding of words: merges by rank, without a word to words around it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/bpe_spec.h"
#include "trainer/tokenizer/merge_table.h"
#include "trainer/tokenizer/word_cache.h"

namespace ddp::train {

/// What encoding of one thread remembers from word to word. A megabyte or two.
struct BpeScratch {
  WordCache cache;
  std::vector<int32_t> tokens;
  std::vector<RankedMerge> merges;
};

/// Sennrich, Haddow, Birch: "Neural Machine Translation of Rare Words with Subword Units", 2016.
/// The pair of lowest rank is merged first, of equal ones the leftmost.
class BpeWords {
 public:
  explicit BpeWords(const BpeSpec& spec);

  /// Appends the tokens of all words of `text`, which is split as word_end() says. Throws
  /// UserError that names a byte that is not in the vocabulary.
  void encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  void split_to_bytes(std::string_view word, std::vector<int32_t>& tokens) const;

  std::array<int32_t, 256> token_of_byte_{};
  MergeTable merges_;
  std::unordered_map<std::string, int32_t> whole_words_;  ///< For ignore_merges: by their bytes.
};

}  // namespace ddp::train
