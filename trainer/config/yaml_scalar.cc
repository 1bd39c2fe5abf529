#include "trainer/config/yaml_scalar.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "trainer/config/python_number.h"

namespace ddp::train {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_sign(char c) { return c == '-' || c == '+'; }

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

/// A cursor over the text: each take_* consumes what it matches.
class Scan {
 public:
  explicit Scan(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  bool sign() { return one_of("+-"); }
  bool one_of(std::string_view set) {
    if (rest_.empty() || set.find(rest_.front()) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::size_t run_of(std::string_view set) {
    std::size_t n = 0;
    while (one_of(set)) ++n;
    return n;
  }
  bool word(std::string_view text) {
    if (rest_.substr(0, text.size()) != text) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// [0-9]+(?:_[0-9]+)*
  bool grouped_digits() {
    if (run_of(kDigits) == 0) return false;
    while (rest_.size() > 1 && rest_[0] == '_' && is_digit(rest_[1])) {
      rest_.remove_prefix(1);
      run_of(kDigits);
    }
    return true;
  }
  /// [eE][-+]?[0-9]+, the sign as asked for
  bool exponent(bool sign_required) {
    if (!one_of("eE")) return false;
    if (!sign() && sign_required) return false;
    return run_of(kDigits) > 0;
  }

  static constexpr std::string_view kDigits = "0123456789";

 private:
  std::string_view rest_;
};

/// PyYAML: [-+]?(0b[0-1_]+ | 0[0-7_]+ | 0 | [1-9][0-9_]* | 0x[0-9a-fA-F_]+ |
/// [1-9][0-9_]*(:[0-5]?[0-9])+)
bool looks_like_int(std::string_view text) {
  Scan scan(text);
  scan.sign();
  if (scan.word("0b")) return scan.run_of("01_") > 0 && scan.done();
  if (scan.word("0x")) return scan.run_of("0123456789abcdefABCDEF_") > 0 && scan.done();
  if (scan.word("0")) {
    scan.run_of("01234567_");
    return scan.done();
  }
  if (!scan.one_of("123456789")) return false;
  scan.run_of("0123456789_");
  while (scan.one_of(":")) {
    if (!scan.one_of("0123456789")) return false;
    scan.one_of("0123456789");
  }
  return scan.done();
}

/// [0-5]?[0-9] after each colon.
bool sexagesimal_parts_ok(std::string_view text) {
  for (std::size_t colon = text.find(':'); colon != std::string_view::npos;
       colon = text.find(':', colon + 1)) {
    const bool two =
        colon + 2 < text.size() && is_digit(text[colon + 1]) && is_digit(text[colon + 2]);
    if (two && text[colon + 1] > '5') return false;
  }
  return true;
}

bool special_float(std::string_view text) {
  Scan scan(text);
  if (scan.word(".nan") || scan.word(".NaN") || scan.word(".NAN")) return scan.done();
  scan.sign();
  return (scan.word(".inf") || scan.word(".Inf") || scan.word(".INF")) && scan.done();
}

bool point_float(std::string_view text) {  // [-+]?N\.[0-9_]*(?:[eE][-+]?[0-9]+)?
  Scan scan(text);
  scan.sign();
  if (!scan.grouped_digits() || !scan.one_of(".")) return false;
  scan.run_of("0123456789_");
  return scan.done() || (scan.exponent(false) && scan.done());
}

bool exponent_float(std::string_view text) {  // [-+]?N(?:[eE][-+]?[0-9]+)
  Scan scan(text);
  scan.sign();
  return scan.grouped_digits() && scan.exponent(false) && scan.done();
}

bool leading_point_float(std::string_view text) {  // \.N(?:[eE][-+][0-9]+)?
  Scan scan(text);
  if (!scan.one_of(".") || !scan.grouped_digits()) return false;
  return scan.done() || (scan.exponent(true) && scan.done());
}

bool looks_like_sexagesimal(std::string_view text) {  // [-+]?N(?::[0-5]?[0-9])+\.[0-9_]*
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos || text.find(':') > point) return false;
  Scan scan(text.substr(0, point));
  scan.sign();
  if (!scan.grouped_digits()) return false;
  while (scan.one_of(":")) {
    if (scan.one_of("012345")) {
      scan.one_of("0123456789");
    } else if (!scan.one_of("6789")) {
      return false;
    }
  }
  Scan tail(text.substr(point + 1));
  tail.run_of("0123456789_");
  return scan.done() && tail.done();
}

/// PyYAML's own float, which OmegaConf extends: [-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?
/// and
/// [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*, \.[0-9][0-9_]*(?:[eE][-+][0-9]+)?
bool pyyaml_float(std::string_view text) {
  Scan scan(text);
  if (!text.empty() && text.front() == '.') {
    scan.one_of(".");
    if (!scan.one_of(Scan::kDigits)) return false;
  } else {
    scan.sign();
    if (!scan.one_of(Scan::kDigits)) return false;
    scan.run_of("0123456789_");
    while (scan.one_of(":")) {
      if (scan.one_of("012345")) {
        scan.one_of(Scan::kDigits);
      } else if (!scan.one_of("6789")) {
        return false;
      }
    }
    if (!scan.one_of(".")) return false;
  }
  scan.run_of("0123456789_");
  if (scan.done()) return true;
  return text.find(':') == std::string_view::npos && scan.exponent(true) && scan.done();
}

bool looks_like_float(std::string_view text) {
  return special_float(text) || point_float(text) || exponent_float(text) ||
         leading_point_float(text) || looks_like_sexagesimal(text) || pyyaml_float(text);
}

bool is_among(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::vector<std::string> sexagesimal_digits(const std::string& text) {
  std::string dotted(text);
  std::replace(dotted.begin(), dotted.end(), '.', '\1');
  std::replace(dotted.begin(), dotted.end(), ':', '.');
  std::vector<std::string> parts = split_path(dotted);
  for (std::string& part : parts) std::replace(part.begin(), part.end(), '\1', '.');
  return parts;
}

/// 1:30 = 90: digits of base 60 from the left.
std::optional<Node> sexagesimal_int(const std::string& text) {
  Node value = Node::of(int64_t{0});
  for (const std::string& part : sexagesimal_digits(text)) {
    const auto digit = python_int(part);
    const auto sum = digit ? sixty_times(value, *digit) : std::nullopt;
    if (!sum) return std::nullopt;
    value = *sum;
  }
  return value;
}

/// From the right, with the powers of 60 as Python rounds them.
std::optional<double> sexagesimal_float(const std::string& text) {
  const std::vector<std::string> parts = sexagesimal_digits(text);
  double total = 0;
  Node base = Node::of(int64_t{1});
  for (std::size_t i = parts.size(); i > 0; --i) {
    const auto digit = python_float_from(parts[i - 1]);
    const auto power = python_float_from(python_str(base));
    if (!digit || !power || !std::isfinite(*power)) return std::nullopt;
    total += *digit * *power;
    base = *sixty_times(base, Node::of(int64_t{0}));
  }
  return total;
}

Node negated(const Node& node) {
  if (node.kind == Kind::kFloat) return Node::of(-node.real);
  const std::string text = python_str(node);
  return *python_int(text.starts_with('-') ? text.substr(1) : "-" + text);
}

/// The sign in front, which PyYAML takes off before it looks at what follows.
bool take_sign(std::string& value) {
  const bool negative = !value.empty() && value.front() == '-';
  if (!value.empty() && is_sign(value.front())) value.erase(0, 1);
  return negative;
}

std::optional<Node> unsigned_int(const std::string& value) {
  if (value.empty()) return std::nullopt;
  const auto digits = std::string_view(value).substr(std::min<std::size_t>(2, value.size()));
  if (value == "0") return Node::of(int64_t{0});
  if (value.starts_with("0b")) return python_int(digits, 2);
  if (value.starts_with("0x")) return python_int(digits, 16);
  if (value.starts_with("0")) return python_int(value, 8);
  if (value.find(':') != std::string::npos) return sexagesimal_int(value);
  return python_int(value);
}

std::optional<double> unsigned_float(const std::string& value) {
  if (value.empty()) return std::nullopt;
  if (value == ".inf") return std::numeric_limits<double>::infinity();
  if (value == ".nan") return std::numeric_limits<double>::quiet_NaN();
  if (value.find(':') != std::string::npos) return sexagesimal_float(value);
  return python_float_from(value);
}

}  // namespace

std::optional<Node> yaml_int(std::string_view text) {
  std::string value = without_underscores(text);
  const bool negative = take_sign(value);
  auto parsed = unsigned_int(value);
  if (parsed && negative) parsed = negated(*parsed);
  return parsed;
}

std::optional<Node> yaml_float(std::string_view text) {
  std::string value = without_underscores(text);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool negative = take_sign(value);
  const auto parsed = unsigned_float(value);
  if (!parsed) return std::nullopt;
  return Node::of(negative ? -*parsed : *parsed);
}

std::optional<Node> yaml_bool(std::string_view text) {
  std::string value(text);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (is_among(value, {"yes", "true", "on"})) return Node::of(true);
  if (is_among(value, {"no", "false", "off"})) return Node::of(false);
  return std::nullopt;
}

std::string_view implicit_tag(std::string_view text) {
  // The $ of Python's expressions matches before a line break at the end, too.
  const std::string_view line = text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
  if (text.empty() || is_among(line, {"~", "null", "Null", "NULL"})) return "null";
  if (is_among(line, {"yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false",
                      "False", "FALSE", "on", "On", "ON", "off", "Off", "OFF"}))
    return "bool";
  if (line == "<<") return "merge";
  if (line == "=") return "value";
  if (is_among(line, {"!", "&", "*"})) return "yaml";  // which nothing constructs
  // PyYAML's own float comes before its int, OmegaConf's behind it; no text is both.
  if (looks_like_int(line) && sexagesimal_parts_ok(line)) return "int";
  return looks_like_float(line) ? "float" : "str";
}

Node type_plain_scalar(std::string_view text) {
  const std::string_view tag = implicit_tag(text);
  std::optional<Node> typed;
  if (tag == "null") typed = Node::null();
  if (tag == "bool") typed = yaml_bool(text);
  if (tag == "int") typed = yaml_int(text);
  if (tag == "float") typed = yaml_float(text);
  return typed ? *typed : Node::of(std::string(text));
}

}  // namespace ddp::train
