#include "trainer/hydra/yaml/yaml_errors.h"

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <array>

#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

struct Words {
  std::string_view theirs;  ///< How yaml-cpp's message begins.
  std::string_view what;
  std::string_view fix;
};

const std::array<Words, 13>& known_errors() {
  namespace message = YAML::ErrorMsg;
  static const std::array<Words, 13> all = {{
      {message::END_OF_SEQ_FLOW, "expected ',' or ']' here", "quote text that contains brackets"},
      {message::END_OF_MAP_FLOW, "expected ',' or '}' here", "quote text that contains braces"},
      {message::END_OF_SEQ, "expected '- item' here", "check the indentation of this line"},
      {message::END_OF_MAP, "expected 'key: value' here", "check the indentation of this line"},
      {message::FLOW_END, "unmatched closing bracket", "remove it, or quote the text"},
      {message::BLOCK_ENTRY, "a list item cannot start here",
       "write '- item' on a line of its own"},
      {message::MAP_KEY, "a key cannot start here", "write it on a line of its own"},
      {message::UNKNOWN_TOKEN, "a value cannot start with this character", "quote it"},
      {message::UNKNOWN_ANCHOR, "this alias has no anchor above", "define it with &name first"},
      {message::INVALID_ESCAPE, "unknown escape sequence",
       "write \\\\ for a backslash, or use single quotes"},
      {message::INVALID_HEX, "incomplete escape sequence", "write \\\\ for a backslash"},
      {message::CHAR_IN_BLOCK, "unexpected text after | or >", "start the text on the next line"},
      {message::TAB_IN_INDENTATION, "tab in the indentation", "indent with spaces"},
  }};
  return all;
}

bool is_printed(uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n';
  return code != 0xfffe && code != 0xffff && (code < 0x7f || code >= 0xa0 || code == 0x85);
}

/// \r\n and \r become \n, as Python opens a text file.
std::string with_plain_breaks(std::string text) {
  std::size_t to = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool before_break = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (!before_break) text[to++] = text[i] == '\r' ? '\n' : text[i];
  }
  text.resize(to);
  return text;
}

bool starts_with(const YAML::Exception& error, std::string_view message) {
  return std::string_view(error.msg).starts_with(message);
}

/// key:value, which is one word to YAML.
bool lacks_space_after_colon(std::string_view line) {
  const std::size_t colon = line.find(':');
  return colon != std::string_view::npos && colon + 1 < line.size() && line[colon + 1] != ' ' &&
         line.find(": ") == std::string_view::npos && !line.ends_with(':');
}

}  // namespace

YamlText::YamlText(std::string_view text, const std::string& source)
    : text_(with_plain_breaks(std::string(text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0)))),
      source_(std::make_shared<const std::string>(source)) {
  for (std::size_t at = 0; at < text_.size();) {
    const auto [code, size] = decode_utf8(text_, at);
    if (size == 0 || !is_printed(code)) {
      fail(mark_at(at),
           fmt::format("invalid UTF-8 or a control character (byte 0x{:02x})",
                       static_cast<unsigned char>(text_[at])),
           "remove it, or save the file as UTF-8");
    }
    at += size;
  }
}

std::string YamlText::for_parser() const {
  const std::size_t last_line = text_.rfind('\n') + 1;  // npos + 1 is 0
  const bool ends_with_break = text_.find_first_not_of(" \t", last_line) == std::string::npos;
  return ends_with_break ? text_.substr(0, last_line) + "...\n" : text_;
}

char YamlText::at(const YAML::Mark& mark) const {
  const auto pos = static_cast<std::size_t>(mark.pos);
  return pos < text_.size() ? text_[pos] : '\0';
}

bool YamlText::ends_with_open_quote(const YAML::Mark& mark) const {
  return static_cast<std::size_t>(mark.pos) + 1 == text_.size() &&
         (text_.back() == '"' || text_.back() == '\'');
}

/// Columns count characters; in absurdly long lines, bytes.
Place YamlText::place(const YAML::Mark& mark) const {
  constexpr int kLongLine = 1000;
  int column = mark.column;
  const auto pos = static_cast<std::size_t>(mark.pos);
  if (column < kLongLine && pos <= text_.size() && mark.column <= mark.pos) {
    const auto end = text_.begin() + mark.pos;
    column -= static_cast<int>(std::count_if(end - mark.column, end, [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
    }));
  }
  return {source_, mark.line + 1, column + 1};
}

YAML::Mark YamlText::mark_at(std::size_t pos) const {
  const std::string_view before = std::string_view(text_).substr(0, pos);
  YAML::Mark mark;
  mark.pos = static_cast<int>(pos);
  mark.line = static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  mark.column = static_cast<int>(pos - (before.rfind('\n') + 1));  // npos + 1 is 0
  return mark;
}

std::string_view YamlText::line(int number) const {
  std::size_t begin = 0;
  for (int i = 0; i < number && begin < text_.size(); ++i)
    begin = std::min(text_.find('\n', begin), text_.size() - 1) + 1;
  return std::string_view(text_).substr(begin, text_.find('\n', begin) - begin);
}

void YamlText::fail(const YAML::Mark& mark, const std::string& what, const std::string& fix) const {
  fail_at(place(mark), "not valid YAML: {}; {}", what, fix);
}

void YamlText::fail_quote(const YAML::Mark& last) const {
  const auto opened = text_.find_first_of("'\"", static_cast<std::size_t>(last.pos));
  fail(opened == std::string::npos ? last : mark_at(opened), "this quote is never closed",
       "close it");
}

void YamlText::fail_document(const YAML::Mark& start) const {
  if (line(start.line).starts_with("---"))
    fail(start, "a second document starts here", "remove the `---`");
  fail(start, "text after the end of the document", "remove it, or the `...` above");
}

void YamlText::fail_bracket(const YAML::Mark& bracket) const {
  const bool list = at(bracket) == '[';
  fail(bracket, fmt::format("this {} is never closed", list ? "list" : "map"),
       fmt::format("close it with {}", list ? ']' : '}'));
}

bool YamlText::is_never_closed(const YAML::Mark& bracket) const {
  int depth = 0;
  for (auto i = static_cast<std::size_t>(bracket.pos); i < text_.size(); ++i) {
    if (text_[i] == '[' || text_[i] == '{') ++depth;
    if ((text_[i] == ']' || text_[i] == '}') && --depth == 0) return false;
  }
  return depth > 0;
}

/// yaml-cpp blames the key after the tab.
void YamlText::check_tab(const YAML::Mark& mark) const {
  const std::string_view text = line(mark.line);
  const std::size_t tab = text.substr(0, text.find_first_not_of(" \t")).find('\t');
  if (tab == std::string_view::npos) return;
  YAML::Mark there = mark;
  there.pos -= mark.column - static_cast<int>(tab);
  there.column = static_cast<int>(tab);
  fail(there, "tab in the indentation", "indent with spaces");
}

/// A quote that was left open ends at the next one, some lines below, where yaml-cpp then stops.
void YamlText::check_late_quote(const YAML::Mark& mark, const YAML::Mark& last) const {
  const char quote = at(last);
  if ((quote != '"' && quote != '\'') || mark.line <= last.line || mark.pos < 1) return;
  const std::string_view before =
      std::string_view(text_).substr(0, static_cast<std::size_t>(mark.pos));
  if (before.empty() || before.find_last_of("'\"") <= static_cast<std::size_t>(last.pos)) return;
  const auto end = line(last.line).find(quote, static_cast<std::size_t>(last.column) + 1);
  if (end != std::string_view::npos) return;
  fail(last, fmt::format("this quote is not closed before line {}", mark.line + 1),
       "close it on its own line");
}

/// ': ' where no key can be: a second one in a line, or below a line that lacks its own.
void YamlText::fail_colon(const YAML::Mark& mark) const {
  const std::string_view before = line(mark.line).substr(0, static_cast<std::size_t>(mark.column));
  if (before.find(": ") != std::string_view::npos)
    fail(mark, "a second ': ' in the line", "quote the value");
  int above = mark.line - 1;
  while (above > 0 && line(above).find_first_not_of(" \t") == std::string_view::npos) --above;
  if (above >= 0 && lacks_space_after_colon(line(above))) {
    fail(mark, fmt::format("line {} has no space after its colon", above + 1), "write key: value");
  }
  if (above >= 0 && line(above).find(':') == std::string_view::npos) {
    fail(mark, fmt::format("line {} has no colon", above + 1),
         "write key: value, with a space after the colon");
  }
  fail(mark, "a key cannot appear here", "check the indentation of this line and the one above");
}

void YamlText::fail(const YAML::Exception& error, const YAML::Mark* bracket,
                    const YAML::Mark& last) const {
  namespace message = YAML::ErrorMsg;
  const bool in_flow =
      starts_with(error, message::END_OF_SEQ_FLOW) || starts_with(error, message::END_OF_MAP_FLOW);
  if (bracket == nullptr) check_tab(error.mark);
  check_late_quote(error.mark, last);
  if (starts_with(error, message::EOF_IN_SCALAR) || starts_with(error, message::DOC_IN_SCALAR))
    fail_quote(last);
  const bool elsewhere = bracket != nullptr && error.mark.line != bracket->line;
  if (bracket != nullptr && in_flow && (elsewhere || error.mark.pos <= bracket->pos))
    fail_bracket(*bracket);
  if (starts_with(error, message::MAP_VALUE)) fail_colon(error.mark);
  for (const Words& known : known_errors()) {
    if (starts_with(error, known.theirs))
      fail(error.mark, std::string(known.what), std::string(known.fix));
  }
  fail(error.mark, error.msg, "check this line");
}

}  // namespace ddp::train
