#include "trainer/tokenizer/wordpiece/bert_words.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

using Characters = std::vector<uint32_t>;

struct CharacterRange {
  uint32_t first;
  uint32_t last;
};

template <std::size_t N>
bool lies_in(const CharacterRange (&ranges)[N], uint32_t c) {
  const auto* range =
      std::find_if(std::begin(ranges), std::end(ranges),
                   [c](const CharacterRange& candidate) { return c <= candidate.last; });
  return range != std::end(ranges) && c >= range->first;
}

// Punctuation, marks and format characters that are younger than Unicode 8 have no class in
// `tokenizers`; what lies between them has no such class in any version.
constexpr CharacterRange kYoungerCharacters[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},
    {0xA76, 0xA76},     {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},
    {0xC77, 0xC77},     {0xC84, 0xC84},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
    {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E5D},
    {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111CF, 0x111CF},
    {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455}, {0x16E97, 0x16F4F},
    {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF}, {0x1E944, 0x1E95F}};

// The blocks that BERT takes for Chinese, with the gap that `tokenizers` has in extensions D and E.
constexpr CharacterRange kChinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0x2F800, 0x2FA1F}};

utf8proc_category_t category_of(uint32_t c) {
  const auto now = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  switch (c) {  // those that have changed their category since Unicode 8
    case 0x166D:
    case 0x111C9:
      return UTF8PROC_CATEGORY_PO;
    case 0x1734:
      return UTF8PROC_CATEGORY_MN;
    default:
      break;
  }
  const bool mark = now == UTF8PROC_CATEGORY_MN || now == UTF8PROC_CATEGORY_CF ||
                    (now >= UTF8PROC_CATEGORY_PC && now <= UTF8PROC_CATEGORY_PO);
  return mark && lies_in(kYoungerCharacters, c) ? UTF8PROC_CATEGORY_CN : now;
}

bool is_white_space(uint32_t c) {
  constexpr uint32_t kNextLine = 0x85;
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return c == kNextLine || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

bool is_removed(uint32_t c) {
  constexpr uint32_t kReplacement = 0xFFFD;
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < ' ' || c == 0x7F;
  const auto category = category_of(c);
  return c == kReplacement ||
         (category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO);
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && !((c | 0x20U) >= 'a' && (c | 0x20U) <= 'z') &&
           !(c >= '0' && c <= '9');
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

void add_decomposed(Characters& out, uint32_t c) {
  constexpr uint32_t kYoungerVowel = 0x11938;  // composed since Unicode 13
  if (c < 0x80 || c == kYoungerVowel) return out.push_back(c);
  constexpr int kMost = 32;  // the longest canonical decomposition has 4
  std::array<utf8proc_int32_t, kMost> parts{};
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), kMost,
                                             UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, kMost); ++i)
    out.push_back(static_cast<uint32_t>(parts[static_cast<std::size_t>(i)]));
}

int combining_class(uint32_t c) {
  if (c < 0x80) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

/// Unicode's canonical ordering (UAX #15): marks in a row by their class.
void put_marks_in_order(Characters& text) {
  for (std::size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    const std::size_t first = i;
    while (i < text.size() && combining_class(text[i]) != 0) ++i;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(first),
                     text.begin() + static_cast<std::ptrdiff_t>(i), [](uint32_t a, uint32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
  }
}

Characters without_accents(const Characters& text) {
  Characters decomposed;
  decomposed.reserve(text.size());
  for (const uint32_t c : text) add_decomposed(decomposed, c);
  put_marks_in_order(decomposed);
  std::erase_if(decomposed,
                [](uint32_t c) { return c >= 0x80 && category_of(c) == UTF8PROC_CATEGORY_MN; });
  return decomposed;
}

struct CasePairs {
  CharacterRange upper;
  uint32_t lower;  // of the first one
  uint32_t step;   // 2: every other character is a lower-case one
};

// Cases of Unicode 15.1 to 17, which `tokenizers` has and utf8proc may not.
constexpr CasePairs kYoungerCases[] = {
    {{0x1C89, 0x1C89}, 0x1C8A, 1},    {{0xA7CB, 0xA7CB}, 0x264, 1},
    {{0xA7CC, 0xA7DA}, 0xA7CD, 2},    {{0xA7DC, 0xA7DC}, 0x19B, 1},
    {{0x10D50, 0x10D65}, 0x10D70, 1}, {{0x16EA0, 0x16EB8}, 0x16EBB, 1}};

uint32_t younger_lower_case(uint32_t c) {
  for (const auto& [upper, lower, step] : kYoungerCases) {
    if (c >= upper.first && c <= upper.last && (c - upper.first) % step == 0)
      return lower + (c - upper.first);
  }
  return c;
}

void add_lower_case(Characters& out, uint32_t c) {
  constexpr uint32_t kDottedI = 0x130;  // the only one with two characters
  constexpr uint32_t kDotAbove = 0x307;
  if (c < 0x80) return out.push_back(c >= 'A' && c <= 'Z' ? c | 0x20U : c);
  if (c == kDottedI) return out.insert(out.end(), {'i', kDotAbove}), void();
  const auto lower = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  out.push_back(lower == c ? younger_lower_case(c) : lower);
}

Characters in_lower_case(const Characters& text) {
  Characters lower;
  lower.reserve(text.size());
  for (const uint32_t c : text) add_lower_case(lower, c);
  return lower;
}

Characters characters_of_text(std::string_view text, const BertWordOptions& options) {
  Characters out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.bytes == 0) throw UserError("the text " + not_utf8(text, at));
    at += point.bytes;
    const uint32_t c = point.value;
    if (options.clean_text && is_removed(c)) continue;
    const bool chinese = options.split_cjk && lies_in(kChinese, c);
    if (chinese) out.push_back(' ');
    out.push_back(options.clean_text && is_white_space(c) ? ' ' : c);
    if (chinese) out.push_back(' ');
  }
  return out;
}

}  // namespace

void for_each_bert_word(std::string_view text, const BertWordOptions& options,
                        const std::function<void(std::string_view)>& on_word) {
  Characters characters = characters_of_text(text, options);
  if (options.strip_accents) characters = without_accents(characters);
  if (options.lower_case) characters = in_lower_case(characters);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) on_word(word);
    word.clear();
  };
  for (const uint32_t c : characters) {
    const bool alone = is_punctuation(c);
    if (alone || is_white_space(c)) end_word();
    if (is_white_space(c)) continue;
    word += encode_utf8(c);
    if (alone) end_word();
  }
  end_word();
}

}  // namespace ddp::train
