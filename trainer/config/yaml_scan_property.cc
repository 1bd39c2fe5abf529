// What stands before a value in a YAML text: directives, anchors, tags.
#include <fmt/format.h>

#include "trainer/config/yaml_token.h"

namespace ddp::train {
namespace {

bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool ends_word(char32_t c) { return c == U' ' || is_yaml_break(c); }

[[noreturn]] void fail_expected(const YamlText& text, std::string_view expected) {
  throw YamlError(text.mark(), fmt::format("expected {}, but found {}", expected,
                                           quoted_character(text.peek())));
}

std::string take_word(YamlText& text) {
  std::size_t length = 0;
  while (is_yaml_word(text.peek(length))) ++length;
  if (length == 0) fail_expected(text, "alphabetic or numeric character");
  std::string word = to_utf8(text.prefix(length));
  text.forward(length);
  return word;
}

int hex_at(const YamlText& text, std::size_t ahead) {
  const char32_t c = text.peek(ahead);
  if (is_digit(c)) return static_cast<int>(c - U'0');
  const char32_t low = c | 0x20U;
  return low >= U'a' && low <= U'f' ? static_cast<int>(low - U'a') + 10 : -1;
}

std::string take_uri_escapes(YamlText& text) {
  std::string bytes;
  const YamlMark start = text.mark();
  while (text.peek() == U'%') {
    text.forward();
    const int high = hex_at(text, 0);
    const int low = hex_at(text, 1);
    if (high < 0 || low < 0) fail_expected(text, "URI escape sequence of 2 hexadecimal numbers");
    bytes += static_cast<char>(high * 16 + low);
    text.forward(2);
  }
  try {
    decode_yaml(bytes);
  } catch (const YamlError&) {
    throw YamlError(start, "the URI escapes are not UTF-8");
  }
  return bytes;
}

std::string take_uri(YamlText& text) {
  constexpr std::u32string_view kMarks = U"-;/?:@&=+$,_.!~*'()[]%";
  std::string out;
  while (is_yaml_word(text.peek()) || kMarks.find(text.peek()) != std::u32string_view::npos) {
    if (text.peek() == U'%') {
      out += take_uri_escapes(text);
    } else {
      append_utf8(out, text.peek());
      text.forward();
    }
  }
  if (out.empty()) fail_expected(text, "URI");
  return out;
}

/// "!", "!!" or "!word!"
std::string take_handle(YamlText& text) {
  if (text.peek() != U'!') fail_expected(text, "'!'");
  std::size_t length = 1;
  if (text.peek(1) != U' ') {
    while (is_yaml_word(text.peek(length))) ++length;
    if (text.peek(length) != U'!') {
      text.forward(length);
      fail_expected(text, "'!'");
    }
    ++length;
  }
  std::string handle = to_utf8(text.prefix(length));
  text.forward(length);
  return handle;
}

std::string take_number(YamlText& text) {
  if (!is_digit(text.peek())) fail_expected(text, "a digit");
  std::string digits;
  for (; is_digit(text.peek()); text.forward()) append_utf8(digits, text.peek());
  return digits;
}

/// %YAML 1.1: any version of 1.
void take_version(YamlText& text, YamlToken& token) {
  text.skip_spaces();
  token.text = take_number(text);
  if (text.peek() != U'.') fail_expected(text, "a digit or '.'");
  text.forward();
  take_number(text);
  if (!ends_word(text.peek())) fail_expected(text, "a digit or ' '");
}

void take_tag_directive(YamlText& text, YamlToken& token) {
  text.skip_spaces();
  token.handle = take_handle(text);
  if (text.peek() != U' ') fail_expected(text, "' '");
  text.skip_spaces();
  token.text = take_uri(text);
  if (!ends_word(text.peek())) fail_expected(text, "' '");
}

/// A second ! before the end of the word makes the first part a handle.
bool has_handle(const YamlText& text) {
  std::size_t length = 1;
  while (!ends_word(text.peek(length))) {
    if (text.peek(length) == U'!') return true;
    ++length;
  }
  return false;
}

}  // namespace

YamlToken scan_directive(YamlText& text) {
  YamlToken token{YamlTokenType::kDirective, text.mark(), {}, "", "", "", false};
  text.forward();
  token.name = take_word(text);
  if (!ends_word(text.peek())) fail_expected(text, "alphabetic or numeric character");
  if (token.name == "YAML") {
    take_version(text, token);
  } else if (token.name == "TAG") {
    take_tag_directive(text, token);
  } else {
    text.skip_line();
  }
  token.end = text.mark();
  text.skip_spaces();
  if (text.peek() == U'#') text.skip_line();
  if (!is_yaml_break(text.peek())) fail_expected(text, "a comment or a line break");
  text.take_break();
  return token;
}

YamlToken scan_anchor(YamlText& text) {
  YamlToken token;
  token.type = text.peek() == U'*' ? YamlTokenType::kAlias : YamlTokenType::kAnchor;
  token.start = text.mark();
  text.forward();
  token.text = take_word(text);
  constexpr std::u32string_view kEnds = U"?:,]}%@`";
  const char32_t c = text.peek();
  if (!is_yaml_blank(c) && kEnds.find(c) == std::u32string_view::npos)
    fail_expected(text, "alphabetic or numeric character");
  token.end = text.mark();
  return token;
}

YamlToken scan_tag(YamlText& text) {
  YamlToken token{YamlTokenType::kTag, text.mark(), {}, "", "", "", false};
  if (text.peek(1) == U'<') {
    text.forward(2);
    token.text = take_uri(text);
    if (text.peek() != U'>') fail_expected(text, "'>'");
    text.forward();
  } else if (is_yaml_blank(text.peek(1))) {
    token.text.assign(1, '!');
    text.forward();
  } else {
    token.handle.assign(1, '!');
    if (has_handle(text)) {
      token.handle = take_handle(text);
    } else {
      text.forward();
    }
    token.text = take_uri(text);
  }
  if (!ends_word(text.peek())) fail_expected(text, "' '");
  token.end = text.mark();
  return token;
}

}  // namespace ddp::train
