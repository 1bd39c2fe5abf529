// The characters of a YAML stream, one at a time, with line and column.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ddp::train {

struct YamlMark {
  std::size_t index = 0;  ///< In characters, from 0.
  int line = 0;
  int column = 0;
};

/// What is wrong with a YAML text, in PyYAML's words; the reader adds the file and the remedy.
class YamlError : public std::runtime_error {
 public:
  YamlError(const YamlMark& where, const std::string& problem, std::string remedy = "")
      : std::runtime_error(problem), mark(where), fix(std::move(remedy)) {}

  YamlMark mark;
  std::string fix;  ///< "" when the problem says it.
};

/// UTF-8 -> characters, ended by a 0. Throws YamlError for a character that YAML does not print and
/// for broken UTF-8.
std::u32string decode_yaml(std::string_view text);

/// The characters of UTF-8, a broken byte as U+FFFD.
std::u32string utf8_characters(std::string_view text);

/// The code point as UTF-8; a lone surrogate, which "\ud800" gives, as three bytes.
void append_utf8(std::string& out, char32_t code);
std::string to_utf8(std::u32string_view text);

/// A cursor over the characters.
class YamlText {
 public:
  explicit YamlText(std::u32string text) : text_(std::move(text)) {}

  char32_t peek(std::size_t ahead = 0) const {
    return at_.index + ahead < text_.size() ? text_[at_.index + ahead] : U'\0';
  }
  std::u32string_view prefix(std::size_t length) const {
    return std::u32string_view(text_).substr(at_.index, length);
  }
  void forward(std::size_t length = 1);
  /// A line break of any kind, taken: \n for all but the two of Unicode, 0 where there is none.
  char32_t take_break();
  /// Spaces, not tabs.
  void skip_spaces();
  /// Up to the next line break.
  void skip_line();
  /// --- or ... with a blank or a break behind it.
  bool at_document_mark() const;

  const YamlMark& mark() const { return at_; }
  int column() const { return at_.column; }
  /// The text of a line, from 0, for messages.
  std::string line(int number) const;

 private:
  std::u32string text_;
  YamlMark at_;
};

/// The end of the text counts as a break.
bool is_yaml_break(char32_t c);
/// A space, a tab or a break.
bool is_yaml_blank(char32_t c);
/// Letters, digits, - and _.
bool is_yaml_word(char32_t c);

/// 'x' as messages show a character.
std::string quoted_character(char32_t c);

}  // namespace ddp::train
