// Byte-level BPE encoding of the words of a text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_spec.h"
#include "trainer/tokenizer/bpe/merge_table.h"
#include "trainer/tokenizer/bpe/pair_merging.h"

namespace ddp::train {

class BpeWords {
 public:
  explicit BpeWords(const BpeSpec& spec);

  /// Appends the tokens of all words of `text`, which is split as the spec says. Throws UserError
  /// naming a byte that is not in the vocabulary.
  void encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void split_to_bytes(std::string_view word, std::vector<int32_t>& tokens) const;

  std::vector<WordStage> stages_;
  std::array<int32_t, 256> token_of_byte_{};
  MergeTable merges_;
  std::unordered_map<std::string, int32_t> whole_words_;  ///< For ignore_merges: by their bytes.
};

}  // namespace ddp::train
