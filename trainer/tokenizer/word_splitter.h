// Pre-tokenisation: the words that byte-pair encoding never merges across.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ddp::train {

/// The end of the word that starts at `at` (below text.size()), as the regular expression of
/// https://github.com/openai/gpt-2/blob/master/src/encoder.py has it:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Character classes are utf8proc's. A byte that is not valid UTF-8 counts as neither letter,
/// number nor space.
std::size_t word_end(std::string_view text, std::size_t at);

/// A stage of splitting, which splits the results of earlier stages further.
enum class WordStage {
  kGpt2,   ///< word_end()
  kQwen,   ///< tiktoken's cl100k pattern with numbers of one digit, as Qwen 2 and 3 use it,
  kLlama,  ///< or of up to three, as Llama 3 does.
  kDigit,  ///< Each digit is a word,
  kDigits  ///< or each run of digits.
};

/// As word_end(), of one step. kQwen and kLlama are
///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
///   |\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t word_end(WordStage stage, std::string_view text, std::size_t at);

/// Calls back for each word of `text` by all stages, in order. Without a stage the text is a word.
template <typename OnWord>
void for_each_word(std::span<const WordStage> stages, std::string_view text,
                   const OnWord& on_word) {
  if (stages.empty()) return on_word(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(stages.front(), text, at);
    for_each_word(stages.subspan(1), text.substr(at, end - at), on_word);
    at = end;
  }
}

/// Bytes of the white space that `text` begins with.
std::size_t spaces_after(std::string_view text);
/// Start of the white space that ends at `end`.
std::size_t spaces_before(std::string_view text, std::size_t end);

/// Whether a word always ends at `at`, 0 < at < text.size(), whatever precedes and follows `text`.
/// False if the bytes at hand do not decide it.
bool always_splits(std::string_view text, std::size_t at);
/// The same for any stages.
bool always_splits(std::span<const WordStage> stages, std::string_view text, std::size_t at);

}  // namespace ddp::train
