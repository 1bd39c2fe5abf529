#include "trainer/tokenizer/word_splitter.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "trainer/tokenizer/utf8.h"

namespace ddp::train {
namespace {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace, kNotAscii };

struct ClassedChar {
  CharClass kind;
  std::size_t bytes;
};

constexpr CharClass ascii_class(unsigned c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  return c < 0x80 ? CharClass::kOther : CharClass::kNotAscii;
}

constexpr auto kByteClass = [] {
  std::array<CharClass, 256> classes{};
  for (unsigned c = 0; c < 256; ++c) classes[c] = ascii_class(c);
  return classes;
}();

// \s is White_Space: the separators, and the controls that move the cursor (U+0085 among them).
CharClass unicode_class(uint32_t code_point) {
  constexpr uint32_t kNextLine = 0x85;
  if (code_point == kNextLine) return CharClass::kSpace;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
    return CharClass::kLetter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
    return CharClass::kNumber;
  if (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP)
    return CharClass::kSpace;
  return CharClass::kOther;
}

ClassedChar classed_char(std::string_view text, std::size_t at) {
  const CharClass kind = kByteClass[static_cast<unsigned char>(text[at])];
  if (kind != CharClass::kNotAscii) return {kind, 1};
  const CodePoint point = decode_utf8(text, at);
  if (point.bytes == 0) return {CharClass::kOther, 1};
  return {unicode_class(point.value), point.bytes};
}

std::size_t run_end(std::string_view text, std::size_t at, CharClass kind) {
  while (at < text.size()) {
    const ClassedChar c = classed_char(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`, where an apostrophe is; 0 for none of them.
std::size_t contraction(std::string_view text, std::size_t at) {
  const char first = at + 1 < text.size() ? text[at + 1] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = at + 2 < text.size() ? text[at + 2] : '\0';
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

/// `\s+(?!\S)|\s+`: the last space of a run belongs to what follows, unless it stands alone.
std::size_t spaces_end(std::string_view text, std::size_t at) {
  std::size_t last = at;
  std::size_t end = at;
  while (end < text.size()) {
    const ClassedChar c = classed_char(text, end);
    if (c.kind != CharClass::kSpace) return last > at ? last : end;
    last = end;
    end += c.bytes;
  }
  return end;
}

/// The start of the character that ends at `end`, which is above 0.
std::size_t char_before(std::string_view text, std::size_t end) {
  for (std::size_t back = 1; back <= 4 && back <= end; ++back) {
    if (decode_utf8(text, end - back).bytes == back) return end - back;
  }
  return end - 1;
}

/// Whether what stands behind the end of `text` could make another character of the one at `at`.
bool may_go_on(std::string_view text, std::size_t at) {
  return text.size() - at < 4 && kByteClass[static_cast<unsigned char>(text[at])] ==
                                     CharClass::kNotAscii;
}

}  // namespace

std::size_t word_end(std::string_view text, std::size_t at) {
  if (text[at] == '\'') {
    const std::size_t bytes = contraction(text, at);
    if (bytes != 0) return at + bytes;
  }
  const ClassedChar first = classed_char(text, at);
  if (first.kind != CharClass::kSpace) return run_end(text, at + first.bytes, first.kind);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const ClassedChar second = classed_char(text, at + 1);
    if (second.kind != CharClass::kSpace)
      return run_end(text, at + 1 + second.bytes, second.kind);
  }
  return spaces_end(text, at);
}

bool always_splits(std::string_view text, std::size_t at) {
  constexpr unsigned kMask = 0xC0;
  constexpr unsigned kContinuation = 0x80;
  if ((static_cast<unsigned char>(text[at]) & kMask) == kContinuation || may_go_on(text, at))
    return false;
  const CharClass before = classed_char(text, char_before(text, at)).kind;
  const CharClass after = classed_char(text, at).kind;
  const bool contracts = before == CharClass::kOther && after == CharClass::kLetter;
  return before != CharClass::kSpace && before != after && !contracts;
}

}  // namespace ddp::train
