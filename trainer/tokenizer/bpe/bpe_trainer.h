// Trains a byte-level BPE on counted words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// The words of a corpus and how often each occurs. add_text() splits as word_end() does.
class WordCounts {
 public:
  void add_text(std::string_view text);
  void add_word(std::string_view word);
  void add(const WordCounts& other);

  std::size_t distinct() const { return counts_.size(); }
  auto begin() const { return counts_.begin(); }
  auto end() const { return counts_.end(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

/// <|endoftext|> is id 0, the bytes follow, then the merges, the most frequent pair first and of
/// equals the one of smaller ids: what BpeTrainer(vocab_size, initial_alphabet of all bytes,
/// special_tokens=["<|endoftext|>"]) of `tokenizers` trains from the same words. The vocabulary is
/// smaller than `size` if no pair is left. Throws UserError if `size` is below 257.
BpeSpec train_bpe(const WordCounts& words, int64_t size);

}  // namespace ddp::train
