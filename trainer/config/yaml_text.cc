#include "trainer/config/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddp::train {
namespace {

struct Decoded {
  char32_t code = 0;
  std::size_t size = 0;  ///< 0 for broken UTF-8.
};

Decoded decode_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (size == 4 ? 0x07U : size == 3 ? 0x0fU : 0x1fU);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<unsigned, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool well_formed = first >= 0xc2 && first <= 0xf4 && code >= kSmallest.at(size);
  return well_formed ? Decoded{code, size} : Decoded{};
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0x7f);
  return c == 0x85 || (c >= 0xa0 && c < 0xd800) || (c >= 0xe000 && c < 0xfffe) ||
         (c >= 0x10000 && c < 0x110000);
}

}  // namespace

std::u32string decode_yaml(std::string_view text) {
  std::u32string out;
  out.reserve(text.size() + 1);
  YamlMark mark;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_at(text, at);
    if (next.size == 0 || !is_printable(next.code)) {
      throw YamlError(
          mark,
          fmt::format("special characters are not allowed (byte 0x{:02x})",
                      static_cast<unsigned char>(text[at])),
          next.size == 0 ? "save the file as UTF-8" : "remove the character, or write an escape");
    }
    at += next.size;
    out += next.code;
    ++mark.column;
    if (next.code == '\n') mark = {mark.index, mark.line + 1, 0};
  }
  out += U'\0';
  return out;
}

std::u32string utf8_characters(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_at(text, at);
    out += next.size == 0 ? U'\ufffd' : next.code;
    at += std::max<std::size_t>(next.size, 1);
  }
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&out](unsigned byte) { out += static_cast<char>(byte); };
  const auto tail = [&](unsigned shift) { put(0x80U | ((code >> shift) & 0x3fU)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0U | code >> 6U);
    tail(0);
  } else if (code < 0x10000) {
    put(0xe0U | code >> 12U);
    tail(6);
    tail(0);
  } else {
    put(0xf0U | code >> 18U);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

void YamlText::forward(std::size_t length) {
  for (; length > 0 && at_.index < text_.size(); --length) {
    const char32_t c = peek();
    ++at_.index;
    const bool breaks =
        c == U'\n' || c == 0x85 || c == 0x2028 || c == 0x2029 || (c == U'\r' && peek() != U'\n');
    if (breaks) {
      ++at_.line;
      at_.column = 0;
    } else if (c != 0xfeff) {
      ++at_.column;
    }
  }
}

char32_t YamlText::take_break() {
  const char32_t c = peek();
  if (c == U'\0' || !is_yaml_break(c)) return U'\0';
  forward(c == U'\r' && peek(1) == U'\n' ? 2 : 1);
  return c == 0x2028 || c == 0x2029 ? c : U'\n';
}

void YamlText::skip_spaces() {
  while (peek() == U' ') forward();
}

void YamlText::skip_line() {
  while (!is_yaml_break(peek())) forward();
}

bool YamlText::at_document_mark() const {
  const auto three = prefix(3);
  return (three == U"---" || three == U"...") && (peek(3) == U'\0' || is_yaml_blank(peek(3)));
}

std::string YamlText::line(int number) const {
  std::size_t begin = 0;
  for (; number > 0 && begin < text_.size(); --number)
    begin = std::min(text_.find(U'\n', begin), text_.size() - 1) + 1;
  std::size_t end = begin;
  while (end < text_.size() && !is_yaml_break(text_[end])) ++end;
  return to_utf8(std::u32string_view(text_).substr(begin, end - begin));
}

bool is_yaml_break(char32_t c) {
  return c == U'\0' || c == U'\n' || c == U'\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_yaml_blank(char32_t c) { return c == U' ' || c == U'\t' || is_yaml_break(c); }

bool is_yaml_word(char32_t c) {
  return (c >= U'0' && c <= U'9') || (c >= U'A' && c <= U'Z') || (c >= U'a' && c <= U'z') ||
         c == U'-' || c == U'_';
}

std::string quoted_character(char32_t c) {
  if (c == U'\0') return "the end of the file";
  if (c == U'\n') return "the end of the line";
  if (c == U'\t') return "a tab";
  std::string out = "'";
  append_utf8(out, c);
  return out + "'";
}

}  // namespace ddp::train
