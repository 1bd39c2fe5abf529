#include "trainer/tokenizer/letter_case.h"

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

bool is_letter(std::string_view text, std::size_t at) {
  const auto category =
      utf8proc_category(static_cast<utf8proc_int32_t>(decode_utf8(text, at).value));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

/// What a letter that has no single other case becomes: 'ß' is "SS" in upper case.
std::string full_case(int32_t point, bool upper) {
  std::array<utf8proc_int32_t, 4> parts{};
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(point, parts.data(), parts.size(), UTF8PROC_CASEFOLD, &boundary);
  if (count <= 1 || count > std::ssize(parts)) return "";
  std::string text;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    text += encode_utf8(static_cast<uint32_t>(upper ? utf8proc_toupper(parts[i]) : parts[i]));
  return text;
}

}  // namespace

std::string capitalized(const std::string& text) {
  std::string result;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  utf8proc_ssize_t left = std::ssize(text);
  while (left > 0) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t read = utf8proc_iterate(bytes, left, &point);
    if (read <= 0) return text;  // the file was checked: it does not happen
    utf8proc_uint8_t encoded[4];
    const auto size = utf8proc_encode_char(
        result.empty() ? utf8proc_totitle(point) : utf8proc_tolower(point), encoded);
    result.append(reinterpret_cast<const char*>(encoded), static_cast<std::size_t>(size));
    bytes += read;
    left -= read;
  }
  return result;
}

std::string in_case(const std::string& text, bool upper) {
  constexpr int32_t kSigma = 0x3A3, kDottedI = 0x130;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint read = decode_utf8(text, at);
    const std::size_t bytes = std::max<std::size_t>(read.bytes, 1);
    const auto point = static_cast<int32_t>(read.value);
    const auto changed = upper ? utf8proc_toupper(point) : utf8proc_tolower(point);
    const std::size_t next = at + bytes;
    const bool may_grow =
        upper ? read.value >= 0x80 && utf8proc_category(point) == UTF8PROC_CATEGORY_LL
              : point == kDottedI;
    const std::string full = may_grow ? full_case(point, upper) : "";
    if (read.bytes == 0) {
      out += text[at];
    } else if (!full.empty()) {
      out += full;
    } else if (!upper && point == kSigma && at > 0 &&
               (next == text.size() || !is_letter(text, next))) {
      std::size_t before = at - 1;  // the end of a word has a form of its own
      while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0U) == 0x80U) --before;
      out += encode_utf8(is_letter(text, before) ? 0x3C2 : 0x3C3);
    } else {
      out += encode_utf8(static_cast<uint32_t>(changed));
    }
    at = next;
  }
  return out;
}

bool is_printable(uint32_t point) {
  if (point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace ddp::train
