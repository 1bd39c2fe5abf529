// Character-level tokenizer: one token per Unicode code point of the training text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddp::train {

class CharVocabulary {
 public:
  /// The distinct code points of `text`, sorted. Throws UserError with the byte offset when it is
  /// not valid UTF-8.
  static CharVocabulary from_text(std::string_view text);
  /// The characters in the order of their indices, each a UTF-8 string of one code point (a
  /// snapshot's `vocabulary`).
  static CharVocabulary from_characters(std::vector<std::string> characters);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  const std::vector<std::string>& characters() const { return characters_; }

  /// Throws UserError that names the first character the vocabulary does not have.
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int32_t>& tokens) const;
  const std::string& decode(int64_t token) const {
    return characters_.at(static_cast<std::size_t>(token));
  }

 private:
  explicit CharVocabulary(std::vector<std::string> characters);

  std::vector<std::string> characters_;
  std::unordered_map<uint32_t, int32_t> index_;
};

int64_t count_characters(std::string_view text);
/// The first `share` of the code points of `text`; never cuts a character in two. 0 < share <= 1.
std::string_view truncate_text(std::string_view text, double share);

}  // namespace ddp::train
