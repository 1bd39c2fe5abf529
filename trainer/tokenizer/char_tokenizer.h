// Character-level tokenizer: one token per Unicode code point of the training text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

class CharTokenizer : public Tokenizer {
 public:
  /// Uses the distinct code points of `text`, sorted. Throws UserError with the byte offset if it
  /// is not valid UTF-8.
  static CharTokenizer from_text(std::string_view text);
  /// The characters in the order of their ids, each a UTF-8 string of one code point.
  explicit CharTokenizer(std::vector<std::string> characters);

  std::string_view kind() const override { return "char"; }
  int64_t size() const override { return static_cast<int64_t>(characters_.size()); }
  /// Throws UserError naming the first character that the vocabulary lacks.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  using Tokenizer::decode;
  std::string state() const override;
  std::size_t safe_prefix(std::string_view text) const override;

  const std::vector<std::string>& characters() const { return characters_; }

 private:
  std::vector<std::string> characters_;
  std::vector<int32_t> index_;  ///< Id of each code point, up to the largest one; -1: none.
};

int64_t count_characters(std::string_view text);
/// The first `share` of the code points of `text`; never splits a character. 0 < share <= 1.
std::string_view truncate_text(std::string_view text, double share);

}  // namespace ddp::train
