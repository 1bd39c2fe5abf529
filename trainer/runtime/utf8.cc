#include "trainer/runtime/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::train {

std::size_t utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = utf8_length(lead);
  if (length == 0 || length > text.size() - at) return {};
  if (length == 1) return {lead, 1};
  uint32_t value = lead & (0xFFU >> (length + 1U));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0U) != 0x80U) return {};
    value = (value << 6U) | (next & 0x3FU);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kSmallest[length] || value > 0x10FFFF || surrogate) return {};
  return {value, length};
}

std::string encode_utf8(uint32_t code_point) {
  const auto tail = [code_point](unsigned shift) {
    return static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU));
  };
  const auto lead = [code_point](unsigned marks, unsigned shift) {
    return static_cast<char>(marks | (code_point >> shift));
  };
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  if (code_point < 0x800) return {lead(0xC0, 6), tail(0)};
  if (code_point < 0x10000) return {lead(0xE0, 12), tail(6), tail(0)};
  return {lead(0xF0, 18), tail(12), tail(6), tail(0)};
}

std::size_t whole_characters(std::string_view text) {
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t back = 1; back <= std::min(kLongestCharacter - 1, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    return utf8_length(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::size_t first_bad_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.bytes == 0) return at;
    at += point.bytes;
  }
  return std::string_view::npos;
}

namespace {

/// Whether all that is not ASCII is pairs of bytes as in GB18030's Chinese characters, most of them
/// with both bytes above ASCII; in text of WINDOWS-1252 a letter follows most accented ones.
bool looks_like_gb18030(std::string_view text) {
  std::size_t high = 0, mixed = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) continue;
    const auto trail = static_cast<unsigned char>(text[++i]);
    if (lead == 0x80 || lead == 0xFF || trail < 0x40 || trail == 0x7F || trail == 0xFF)
      return false;
    ++(trail > 0x7F ? high : mixed);
  }
  constexpr std::size_t kFewest = 2;  // one pair may be two accented letters
  return high > mixed && high >= kFewest;
}

}  // namespace

std::string not_utf8(std::string_view text, std::size_t at, uint64_t offset) {
  constexpr std::size_t kLooksAt = 4096;
  const std::string_view start = text.substr(0, kLooksAt);
  const char* advice = "convert it, for example with iconv -f WINDOWS-1252 -t UTF-8";
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF"))
    advice = "it looks like UTF-16: convert it with iconv -f UTF-16 -t UTF-8";
  else if (start.find('\0') != std::string_view::npos)
    advice = "it looks like a binary file: name a text";
  else if (looks_like_gb18030(text.substr(at, kLooksAt)))
    advice = "it looks like Chinese text in GB18030: convert it with iconv -f GB18030 -t UTF-8";
  return fmt::format("is not valid UTF-8 at byte {}; {}", offset + at, advice);
}

}  // namespace ddp::train
