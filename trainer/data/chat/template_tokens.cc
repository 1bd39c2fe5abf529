#include "trainer/data/chat/template_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

using Kind = TemplateToken::Kind;

constexpr std::string_view kTemplateSpaces = " \t\n\r\v\f";

bool is_template_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_template_digit(char c) { return c >= '0' && c <= '9'; }

class TemplateLexer {
 public:
  explicit TemplateLexer(std::string_view source) {
    for (std::size_t i = 0; i < source.size(); ++i) {  // \r\n and \r are line ends, too
      if (source[i] != '\r') source_ += source[i];
      if (source[i] == '\r' && (i + 1 == source.size() || source[i + 1] != '\n')) source_ += '\n';
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<TemplateToken> read() {
    while (at_ < source_.size()) read_data_and_tag();
    add(Kind::kEndOfFile, "");
    return std::move(tokens_);
  }

 private:
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void move_to(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char second = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (second == '{' || second == '%' || second == '#') return at;
    }
    return source_.size();
  }

  void read_data_and_tag() {
    const std::size_t tag = next_tag();
    std::string data = source_.substr(at_, tag - at_);
    const char type = tag < source_.size() ? source_[tag + 1] : '\0';
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (type != '\0' && sign == '-') {
      data.erase(data.find_last_not_of(kTemplateSpaces) + 1);
    } else if ((type == '%' || type == '#') && sign != '+') {
      strip_line_start(data);
    }
    if (!data.empty()) add(Kind::kData, data);
    move_to(tag);
    if (type == '\0') return;
    move_to(at_ + (sign == '-' || sign == '+' ? 3 : 2));
    if (type == '#') return skip_comment();
    if (type == '%' && read_raw()) return;
    add(type == '%' ? Kind::kStatement : Kind::kOutput, "");
    read_tag(type == '%' ? '%' : '}');
  }

  /// lstrip_blocks: white space between the start of a line and a block.
  void strip_line_start(std::string& data) const {
    const std::size_t line = data.rfind('\n') + 1;  // 0 without one
    if (line == 0 && !at_line_start_) return;
    if (data.find_first_not_of(kTemplateSpaces, line) == std::string::npos) data.erase(line);
  }

  /// {% raw %}: what is in it is text. Returns whether a tag at hand is that.
  bool read_raw() {
    const auto tag_end = [this](std::size_t from, std::string_view name) -> std::size_t {
      std::size_t at = std::min(source_.find_first_not_of(kTemplateSpaces, from), source_.size());
      if (source_.compare(at, name.size(), name) != 0) return 0;
      at = source_.find_first_not_of(kTemplateSpaces, at + name.size());
      if (at != std::string::npos && (source_[at] == '-' || source_[at] == '+')) ++at;
      return at != std::string::npos && source_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
    };
    const std::size_t begin = tag_end(at_, "raw");
    if (begin == 0) return false;
    const bool strips_before = source_[begin - 3] == '-';
    move_to(begin);
    after_tag(strips_before, /*block=*/true);
    for (std::size_t at = source_.find("{%", at_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      const char sign = source_[at + 2];
      const std::size_t end = tag_end(at + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
      if (end == 0) continue;
      std::string data = source_.substr(at_, at - at_);
      if (sign == '-')
        data.erase(data.find_last_not_of(kTemplateSpaces) + 1);
      else if (sign != '+')
        strip_line_start(data);
      if (!data.empty()) add(Kind::kData, data);
      move_to(end);
      after_tag(source_[end - 3] == '-', /*block=*/true);
      return true;
    }
    refuse_template(line_, "'endraw' is missing");
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse_template(line_, "a comment has no end");
    const bool strips = source_[end - 1] == '-';
    move_to(end + 2);
    after_tag(strips, /*block=*/true);
  }

  void after_tag(bool strips, bool block) {
    const std::size_t begin = at_;
    if (strips)
      move_to(std::min(source_.find_first_not_of(kTemplateSpaces, at_), source_.size()));
    else if (block && peek() == '\n')
      move_to(at_ + 1);
    at_line_start_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void read_tag(char close) {
    for (;;) {
      move_to(std::min(source_.find_first_not_of(kTemplateSpaces, at_), source_.size()));
      if (at_ == source_.size()) refuse_template(line_, "a tag has no end");
      const bool strips = peek() == '-';
      const std::size_t sign = strips || peek() == '+' ? 1 : 0;
      if (peek(sign) == close && peek(sign + 1) == '}' && depth_ == 0) {
        add(Kind::kEnd, "");
        move_to(at_ + sign + 2);
        return after_tag(strips, close == '%');
      }
      read_token();
    }
  }

  void read_token() {
    const char c = peek();
    if (c == '\'' || c == '"') return read_string(c);
    const std::size_t begin = at_;
    std::size_t end = at_;
    const auto while_it = [&](auto&& holds) {
      while (end < source_.size() && holds(source_[end])) ++end;
    };
    if (is_template_digit(c)) {
      while_it([](char each) { return is_template_digit(each) || each == '_'; });
      const auto digit_at = [this](std::size_t at) {
        return at < source_.size() && is_template_digit(source_[at]);
      };
      if (source_[end] == '.' && digit_at(end + 1) && !after_dot()) {
        ++end;
        while_it(is_template_digit);
      }
      if (const std::size_t sign = end + 1;
          end < source_.size() && (source_[end] | 32) == 'e' &&
          (digit_at(sign) ||
           (digit_at(sign + 1) && (source_[sign] == '-' || source_[sign] == '+')))) {
        end += 2;
        while_it(is_template_digit);
      }
      std::string number = source_.substr(begin, end - begin);
      std::erase(number, '_');
      add(Kind::kNumber, std::move(number));
    } else if (is_template_letter(c)) {
      while_it([](char each) { return is_template_letter(each) || is_template_digit(each); });
      add(Kind::kName, source_.substr(begin, end - begin));
    } else {
      end = begin + sign_length();
      const std::string sign = source_.substr(begin, end - begin);
      if (sign == "{" || sign == "[" || sign == "(") ++depth_;
      if ((sign == "}" || sign == "]" || sign == ")") && depth_ > 0) --depth_;
      add(Kind::kSign, sign);
    }
    move_to(end);
  }

  /// In `list.0.1` no number is a fraction.
  bool after_dot() const { return !tokens_.empty() && tokens_.back().text == "."; }

  std::size_t sign_length() const {
    constexpr std::array<std::string_view, 6> kLong = {"==", "!=", "<=", ">=", "//", "**"};
    const std::string_view two = std::string_view(source_).substr(at_, 2);
    if (std::find(kLong.begin(), kLong.end(), two) != kLong.end()) return 2;
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(peek()) == std::string_view::npos)
      refuse_template(line_, fmt::format("unexpected character '{}'", peek()));
    return 1;
  }

  void read_string(char quote) {
    std::string text;
    std::size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] == '\\' && at + 1 < source_.size())
        at = read_escape(at + 1, text);
      else
        text += source_[at++];
    }
    if (at >= source_.size()) refuse_template(line_, "a string has no end");
    add(Kind::kString, std::move(text));
    move_to(at + 1);
  }

  /// Python's escape whose character after the backslash is at `at`. Returns where it ends.
  std::size_t read_escape(std::size_t at, std::string& text) const {
    constexpr std::string_view kFrom = "ntrabfv\\'\"";
    const char kind = source_[at];
    if (kind == '\n') return at + 1;
    if (const std::size_t known = kFrom.find(kind); known != std::string_view::npos) {
      text += "\n\t\r\a\b\f\v\\'\""[known];
      return at + 1;
    }
    const bool octal = kind >= '0' && kind <= '7';
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 3;
    const std::size_t begin = octal ? at : at + 1;
    if (!octal && digits == 3) {  // no escape: both characters stand for themselves
      text += '\\';
      text += kind;
      return at + 1;
    }
    const std::size_t most = std::min(begin + digits, source_.size());
    uint32_t point = 0;
    const auto read =
        std::from_chars(source_.data() + begin, source_.data() + most, point, octal ? 8 : 16);
    const auto end = static_cast<std::size_t>(read.ptr - source_.data());
    if ((!octal && end != begin + digits) || point > 0x10FFFF ||
        (point >= 0xD800 && point < 0xE000))
      refuse_template(line_, fmt::format("the escape '\\{}' in a string is no character", kind));
    text += encode_utf8(point);
    return end;
  }

  std::string source_;
  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;  // of brackets within a tag
  bool at_line_start_ = true;
};

}  // namespace

std::vector<TemplateToken> template_tokens(std::string_view source) {
  return TemplateLexer(source).read();
}

void refuse_template(int line, const std::string& what) {
  throw UserError(fmt::format("line {}: {}", line, what));
}

}  // namespace ddp::train
