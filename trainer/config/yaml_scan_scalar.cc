// Scalars of a YAML text: plain, quoted, and the blocks behind | and >.
#include <fmt/format.h>

#include "trainer/config/yaml_token.h"

namespace ddp::train {
namespace {

bool is_hex(char32_t c) {
  return (c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'f') || (c >= U'A' && c <= U'F');
}

unsigned hex_value(char32_t c) {
  if (c <= U'9') return c - U'0';
  return (c | 0x20U) - U'a' + 10;
}

bool among(char32_t c, std::u32string_view set) { return set.find(c) != std::u32string_view::npos; }

enum class Chomp { kClip, kStrip, kKeep };

/// What follows | or >: how the end is cut, and the indentation where it is given.
struct BlockHeader {
  Chomp chomp = Chomp::kClip;
  int increment = 0;
};

class BlockScan {
 public:
  BlockScan(YamlText& text, int parent_indent) : text_(text), parent_(parent_indent) {}

  YamlToken scan() {
    YamlToken token{YamlTokenType::kScalar, text_.mark(), {}, "", "", "", false};
    folded_ = text_.peek() == U'>';
    text_.forward();
    const BlockHeader header = scan_header();
    skip_rest_of_line();
    std::u32string breaks = first_breaks(header);
    char32_t line_break = U'\0';
    std::u32string out;
    while (inside()) {
      out += breaks;
      const bool leading_text = !is_space(text_.peek());
      take_line(out);
      line_break = text_.take_break();
      breaks = take_breaks();
      if (!inside()) break;
      const bool joins = folded_ && line_break == U'\n' && leading_text && !is_space(text_.peek());
      if (!joins && line_break != U'\0') out += line_break;
      if (joins && breaks.empty()) out += U' ';
    }
    if (header.chomp != Chomp::kStrip && line_break != U'\0') out += line_break;
    if (header.chomp == Chomp::kKeep) out += breaks;
    token.text = to_utf8(out);
    token.end = text_.mark();
    return token;
  }

 private:
  static bool is_space(char32_t c) { return c == U' ' || c == U'\t'; }
  bool inside() const { return text_.column() == indent_ && text_.peek() != U'\0'; }

  void take_line(std::u32string& out) {
    std::size_t length = 0;
    while (!is_yaml_break(text_.peek(length))) ++length;
    out += text_.prefix(length);
    text_.forward(length);
  }

  bool take_chomp(BlockHeader& header) {
    if (!among(text_.peek(), U"+-")) return false;
    header.chomp = text_.peek() == U'+' ? Chomp::kKeep : Chomp::kStrip;
    text_.forward();
    return true;
  }

  bool take_increment(BlockHeader& header) {
    if (!among(text_.peek(), U"0123456789")) return false;
    header.increment = static_cast<int>(text_.peek() - U'0');
    if (header.increment == 0) {
      throw YamlError(text_.mark(), "expected indentation indicator in the range 1-9, but found 0");
    }
    text_.forward();
    return true;
  }

  BlockHeader scan_header() {
    BlockHeader header;
    if (take_chomp(header)) {
      take_increment(header);
    } else if (take_increment(header)) {
      take_chomp(header);
    }
    if (text_.peek() != U' ' && !is_yaml_break(text_.peek())) {
      throw YamlError(text_.mark(),
                      "expected chomping or indentation indicators, but found " +
                          quoted_character(text_.peek()),
                      "begin the text on the next line, indented");
    }
    return header;
  }

  void skip_rest_of_line() {
    text_.skip_spaces();
    if (text_.peek() == U'#') text_.skip_line();
    if (!is_yaml_break(text_.peek())) {
      throw YamlError(
          text_.mark(),
          "expected a comment or a line break, but found " + quoted_character(text_.peek()),
          "begin the text on the next line, indented");
    }
    text_.take_break();
  }

  /// The empty lines before the text; finds the indentation.
  std::u32string first_breaks(const BlockHeader& header) {
    const int least = std::max(parent_ + 1, 1);
    if (header.increment > 0) {
      indent_ = least + header.increment - 1;
      return take_breaks();
    }
    std::u32string breaks;
    int widest = 0;
    while (text_.peek() == U' ' || (text_.peek() != U'\0' && is_yaml_break(text_.peek()))) {
      if (text_.peek() == U' ') {
        text_.forward();
        widest = std::max(widest, text_.column());
      } else {
        breaks += text_.take_break();
      }
    }
    indent_ = std::max(least, widest);
    return breaks;
  }

  std::u32string take_breaks() {
    std::u32string breaks;
    const auto skip_indent = [this] {
      while (text_.column() < indent_ && text_.peek() == U' ') text_.forward();
    };
    skip_indent();
    while (text_.peek() != U'\0' && is_yaml_break(text_.peek())) {
      breaks += text_.take_break();
      skip_indent();
    }
    return breaks;
  }

  YamlText& text_;
  const int parent_;
  int indent_ = 0;
  bool folded_ = false;
};

class FlowScan {
 public:
  explicit FlowScan(YamlText& text) : text_(text), start_(text.mark()), quote_(text.peek()) {}

  YamlToken scan() {
    text_.forward();
    take_text();
    while (text_.peek() != quote_) {
      take_spaces();
      take_text();
    }
    text_.forward();
    return {YamlTokenType::kScalar, start_, text_.mark(), to_utf8(out_), "", "", false};
  }

 private:
  bool is_double() const { return quote_ == U'"'; }

  void take_text() {
    while (true) {
      std::size_t length = 0;
      while (!is_yaml_blank(text_.peek(length)) && !among(text_.peek(length), U"'\"\\")) ++length;
      out_ += text_.prefix(length);
      text_.forward(length);
      const char32_t c = text_.peek();
      if (!is_double() && c == U'\'' && text_.peek(1) == U'\'') {
        out_ += c;
        text_.forward(2);
      } else if (is_double() ? c == U'\'' : c == U'"' || c == U'\\') {
        out_ += c;
        text_.forward();
      } else if (is_double() && c == U'\\') {
        text_.forward();
        take_escape();
      } else {
        return;
      }
    }
  }

  void take_escape() {
    constexpr std::u32string_view kNames = U"0abt\tnvfre \"\\/N_LP";
    constexpr char32_t kCodes[] = {0,    7,   8,   9,    9,   10,   11,   12,     13,
                                   0x1b, ' ', '"', '\\', '/', 0x85, 0xa0, 0x2028, 0x2029};
    const char32_t c = text_.peek();
    const std::size_t known = kNames.find(c);
    if (known != std::u32string_view::npos) {
      out_ += kCodes[known];
      text_.forward();
    } else if (c == U'x' || c == U'u' || c == U'U') {
      text_.forward();
      take_code(c == U'x' ? 2 : c == U'u' ? 4 : 8);
    } else if (c != U'\0' && is_yaml_break(c)) {
      text_.take_break();
      take_breaks();
    } else {
      throw YamlError(text_.mark(), "found unknown escape character " + quoted_character(c),
                      "write \\\\ for a backslash, or use single quotes");
    }
  }

  void take_code(std::size_t length) {
    char32_t code = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const char32_t c = text_.peek(i);
      if (!is_hex(c)) {
        throw YamlError(text_.mark(),
                        fmt::format("expected escape sequence of {} hexadecimal numbers, but found "
                                    "{}",
                                    length, quoted_character(c)));
      }
      code = (code << 4U) + hex_value(c);
      if (code > 0x10ffff) throw YamlError(text_.mark(), "the escape is no character of Unicode");
    }
    out_ += code;
    text_.forward(length);
  }

  void take_spaces() {
    std::size_t length = 0;
    while (text_.peek(length) == U' ' || text_.peek(length) == U'\t') ++length;
    const std::u32string spaces(text_.prefix(length));
    text_.forward(length);
    if (text_.peek() == U'\0') {
      throw YamlError(start_, "found unexpected end of stream while scanning a quoted scalar",
                      "close the quote");
    }
    const char32_t line_break = text_.take_break();
    if (line_break == U'\0') {
      out_ += spaces;
      return;
    }
    const std::size_t before = out_.size();
    if (line_break != U'\n') out_ += line_break;
    const bool more = take_breaks();
    if (line_break == U'\n' && !more) out_.insert(before, 1, U' ');
  }

  /// Empty lines; whether there were any.
  bool take_breaks() {
    bool any = false;
    while (true) {
      if (text_.at_document_mark()) {
        throw YamlError(text_.mark(), "found unexpected document separator in a quoted scalar",
                        "close the quote");
      }
      while (text_.peek() == U' ' || text_.peek() == U'\t') text_.forward();
      const char32_t line_break = text_.take_break();
      if (line_break == U'\0') return any;
      out_ += line_break;
      any = true;
    }
  }

  YamlText& text_;
  const YamlMark start_;
  const char32_t quote_;
  std::u32string out_;
};

/// How many characters from the cursor belong to one run of plain text.
std::size_t plain_run(const YamlText& text, bool in_flow) {
  std::size_t length = 0;
  while (true) {
    const char32_t c = text.peek(length);
    if (is_yaml_blank(c) || (in_flow && among(c, U",?[]{}"))) return length;
    const char32_t after = text.peek(length + 1);
    if (c == U':' && (is_yaml_blank(after) || (in_flow && among(after, U",[]{}")))) return length;
    ++length;
  }
}

/// What joins two runs: spaces, a fold of line breaks; nothing at the end of the text.
std::u32string plain_spaces(YamlText& text, bool& line_ended) {
  std::size_t length = 0;
  while (text.peek(length) == U' ') ++length;
  std::u32string spaces(text.prefix(length));
  text.forward(length);
  const char32_t line_break = text.take_break();
  if (line_break == U'\0') return spaces;
  line_ended = true;
  if (text.at_document_mark()) return {};
  std::u32string breaks;
  while (text.peek() == U' ' || (text.peek() != U'\0' && is_yaml_break(text.peek()))) {
    if (text.peek() == U' ') {
      text.forward();
      continue;
    }
    breaks += text.take_break();
    if (text.at_document_mark()) return {};
  }
  if (line_break != U'\n') return line_break + breaks;
  return breaks.empty() ? std::u32string(1, U' ') : breaks;
}

}  // namespace

YamlToken scan_block_scalar(YamlText& text, int parent_indent) {
  return BlockScan(text, parent_indent).scan();
}

YamlToken scan_flow_scalar(YamlText& text) { return FlowScan(text).scan(); }

YamlToken scan_plain(YamlText& text, bool in_flow, int parent_indent, bool& line_ended) {
  YamlToken token{YamlTokenType::kScalar, text.mark(), text.mark(), "", "", "", true};
  std::u32string out;
  std::u32string spaces;
  while (text.peek() != U'#') {
    const std::size_t length = plain_run(text, in_flow);
    if (length == 0) break;
    line_ended = false;
    out += spaces;
    out += text.prefix(length);
    text.forward(length);
    token.end = text.mark();
    spaces = plain_spaces(text, line_ended);
    if (spaces.empty() || (!in_flow && text.column() < parent_indent + 1)) break;
  }
  token.text = to_utf8(out);
  return token;
}

}  // namespace ddp::train
