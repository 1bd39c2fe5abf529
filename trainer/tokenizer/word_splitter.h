// GPT-2's pre-tokenisation: the words that byte-pair encoding never merges across.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddp::train {

/// The end of the word that starts at `at` (below text.size()), as the regular expression of
/// https://github.com/openai/gpt-2/blob/master/src/encoder.py has it:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Character classes are utf8proc's. A byte that is not valid UTF-8 counts as neither letter,
/// number nor space.
std::size_t word_end(std::string_view text, std::size_t at);

/// Whether a word always ends at `at`, 0 < at < text.size(), whatever stands before and behind
/// `text`. False where the bytes at hand do not tell.
bool always_splits(std::string_view text, std::size_t at);

}  // namespace ddp::train
