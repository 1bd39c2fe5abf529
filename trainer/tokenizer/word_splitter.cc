#include "trainer/tokenizer/word_splitter.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "trainer/runtime/utf8.h"

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

struct ClassedRange {
  uint32_t first;
  uint32_t last;
  CharClass kind;
};

// Letters and numbers of Unicode 15.1 and 16.0, the latter what `tokenizers` 0.23 knows; asked only
// where utf8proc (2.8: Unicode 15.0, 2.9: 15.1) has no character.
constexpr ClassedRange kLaterCharacters[] = {
    {0x1C89, 0x1C8A, CharClass::kLetter},   {0xA7CB, 0xA7CD, CharClass::kLetter},
    {0xA7DA, 0xA7DC, CharClass::kLetter},   {0x105C0, 0x105F3, CharClass::kLetter},
    {0x10D40, 0x10D49, CharClass::kNumber}, {0x10D4A, 0x10D65, CharClass::kLetter},
    {0x10D6F, 0x10D85, CharClass::kLetter}, {0x10EC2, 0x10EC4, CharClass::kLetter},
    {0x11380, 0x11389, CharClass::kLetter}, {0x1138B, 0x1138B, CharClass::kLetter},
    {0x1138E, 0x1138E, CharClass::kLetter}, {0x11390, 0x113B5, CharClass::kLetter},
    {0x113B7, 0x113B7, CharClass::kLetter}, {0x113D1, 0x113D1, CharClass::kLetter},
    {0x113D3, 0x113D3, CharClass::kLetter}, {0x116D0, 0x116E3, CharClass::kNumber},
    {0x11BC0, 0x11BE0, CharClass::kLetter}, {0x11BF0, 0x11BF9, CharClass::kNumber},
    {0x13460, 0x143FA, CharClass::kLetter}, {0x16100, 0x1611D, CharClass::kLetter},
    {0x16130, 0x16139, CharClass::kNumber}, {0x16D40, 0x16D6C, CharClass::kLetter},
    {0x16D70, 0x16D79, CharClass::kNumber}, {0x18CFF, 0x18CFF, CharClass::kLetter},
    {0x1CCF0, 0x1CCF9, CharClass::kNumber}, {0x1E5D0, 0x1E5ED, CharClass::kLetter},
    {0x1E5F0, 0x1E5F0, CharClass::kLetter}, {0x1E5F1, 0x1E5FA, CharClass::kNumber},
    {0x2EBF0, 0x2EE5D, CharClass::kLetter}};

CharClass later_class(uint32_t code_point) {
  const auto* range = std::find_if(
      std::begin(kLaterCharacters), std::end(kLaterCharacters),
      [code_point](const ClassedRange& candidate) { return code_point <= candidate.last; });
  const bool inside = range != std::end(kLaterCharacters) && code_point >= range->first;
  return inside ? range->kind : CharClass::kOther;
}

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
  return category == UTF8PROC_CATEGORY_CN ? later_class(code_point) : CharClass::kOther;
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

bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// Bytes of a contraction in either case; U+017F is an s in the other case.
std::size_t contraction_in_any_case(std::string_view text, std::size_t at) {
  constexpr std::string_view kLongS = "\u017F";
  if (text.substr(at + 1).starts_with(kLongS)) return 1 + kLongS.size();
  char lowered[3] = {'\'', '\0', '\0'};
  const std::size_t count = std::min<std::size_t>(text.size() - at, std::size(lowered));
  for (std::size_t i = 1; i < count; ++i) {
    const char c = text[at + i];
    lowered[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return contraction({lowered, count}, 0);
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`
std::size_t lines_or_spaces_end(std::string_view text, std::size_t at) {
  std::size_t after_line = 0;
  for (std::size_t end = at; end < text.size();) {
    const ClassedChar c = classed_char(text, end);
    if (c.kind != CharClass::kSpace) break;
    end += c.bytes;
    if (is_newline(text[end - 1])) after_line = end;
  }
  return after_line != 0 ? after_line : spaces_end(text, at);
}

/// `[^\s\p{L}\p{N}]+[\r\n]*`, the first character of which ends at `at`.
std::size_t signs_end(std::string_view text, std::size_t at) {
  std::size_t end = run_end(text, at, CharClass::kOther);
  while (end < text.size() && is_newline(text[end])) ++end;
  return end;
}

std::size_t number_end(std::string_view text, std::size_t at, int most) {
  for (int i = 0; i < most && at < text.size(); ++i) {
    const ClassedChar c = classed_char(text, at);
    if (c.kind != CharClass::kNumber) break;
    at += c.bytes;
  }
  return at;
}

std::size_t tiktoken_word_end(std::string_view text, std::size_t at, int most_digits) {
  if (text[at] == '\'') {
    const std::size_t bytes = contraction_in_any_case(text, at);
    if (bytes != 0) return at + bytes;
  }
  const ClassedChar first = classed_char(text, at);
  if (first.kind == CharClass::kLetter) return run_end(text, at + first.bytes, first.kind);
  if (first.kind == CharClass::kNumber) return number_end(text, at, most_digits);
  const std::size_t next = at + first.bytes;
  const CharClass second = next < text.size() ? classed_char(text, next).kind : CharClass::kSpace;
  if (second == CharClass::kLetter && !is_newline(text[at]))
    return run_end(text, next, CharClass::kLetter);
  if (first.kind == CharClass::kOther) return signs_end(text, next);
  if (text[at] == ' ' && second == CharClass::kOther) return signs_end(text, next);
  return lines_or_spaces_end(text, at);
}

/// Digits, one or all of them, or all up to the next one.
std::size_t digits_end(std::string_view text, std::size_t at, bool single) {
  const ClassedChar first = classed_char(text, at);
  std::size_t end = at + first.bytes;
  if (first.kind == CharClass::kNumber)
    return single ? end : run_end(text, end, CharClass::kNumber);
  while (end < text.size()) {
    const ClassedChar c = classed_char(text, end);
    if (c.kind == CharClass::kNumber) break;
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

/// Whether text after the end of `text` could turn the character at `at` into another one.
bool may_go_on(std::string_view text, std::size_t at) {
  return text.size() - at < 4 &&
         kByteClass[static_cast<unsigned char>(text[at])] == CharClass::kNotAscii;
}

bool may_be_inside_character(std::string_view text, std::size_t at) {
  constexpr unsigned kMask = 0xC0;
  constexpr unsigned kContinuation = 0x80;
  return (static_cast<unsigned char>(text[at]) & kMask) == kContinuation || may_go_on(text, at);
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
    if (second.kind != CharClass::kSpace) return run_end(text, at + 1 + second.bytes, second.kind);
  }
  return spaces_end(text, at);
}

std::size_t word_end(WordStage stage, std::string_view text, std::size_t at) {
  constexpr int kMostDigits = 3;
  switch (stage) {
    case WordStage::kGpt2:
      return word_end(text, at);
    case WordStage::kQwen:
      return tiktoken_word_end(text, at, 1);
    case WordStage::kLlama:
      return tiktoken_word_end(text, at, kMostDigits);
    case WordStage::kDigit:
      return digits_end(text, at, /*single=*/true);
    case WordStage::kDigits:
      return digits_end(text, at, /*single=*/false);
  }
  return text.size();
}

std::size_t spaces_after(std::string_view text) { return run_end(text, 0, CharClass::kSpace); }

std::size_t spaces_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t at = char_before(text, end);
    if (classed_char(text, at).kind != CharClass::kSpace) break;
    end = at;
  }
  return end;
}

bool always_splits(std::string_view text, std::size_t at) {
  if (may_be_inside_character(text, at)) return false;
  const CharClass before = classed_char(text, char_before(text, at)).kind;
  const CharClass after = classed_char(text, at).kind;
  const bool contracts = before == CharClass::kOther && after == CharClass::kLetter;
  return before != CharClass::kSpace && before != after && !contracts;
}

// Their words never continue after a letter or a digit with a character of another kind.
bool always_splits(std::span<const WordStage> stages, std::string_view text, std::size_t at) {
  if (stages.empty() || may_be_inside_character(text, at)) return false;
  if (stages.size() == 1 && stages.front() == WordStage::kGpt2) return always_splits(text, at);
  const bool only_digits = std::all_of(stages.begin(), stages.end(), [](WordStage stage) {
    return stage == WordStage::kDigit || stage == WordStage::kDigits;
  });
  const CharClass before = classed_char(text, char_before(text, at)).kind;
  const CharClass after = classed_char(text, at).kind;
  if (only_digits) return (before == CharClass::kNumber) != (after == CharClass::kNumber);
  return before != after && (before == CharClass::kLetter || before == CharClass::kNumber);
}

}  // namespace ddp::train
