// UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::train {

struct CodePoint {
  uint32_t value = 0;
  std::size_t bytes = 0;  ///< 0: not valid UTF-8
};

/// Length of a character by its first byte; 0 for a byte that cannot begin one.
std::size_t utf8_length(unsigned char lead);

/// The code point that starts at `at`, which is below text.size(). It depends on no byte before.
CodePoint decode_utf8(std::string_view text, std::size_t at);

/// Encodes a code point that UTF-8 can represent.
std::string encode_utf8(uint32_t code_point);

/// The largest length that does not split a character, as far as `text` shows it.
std::size_t whole_characters(std::string_view text);

/// The byte order mark that some editors put in front of a text; it does not belong to it.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Position of the first byte that is not UTF-8, npos if there is none.
std::size_t first_bad_byte(std::string_view text);

/// "is not valid UTF-8 at byte 7; ...": what is wrong at `at` of `text`, which begins at byte
/// `offset` of a file, and the fix.
std::string not_utf8(std::string_view text, std::size_t at, uint64_t offset = 0);

}  // namespace ddp::train
