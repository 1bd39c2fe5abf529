#include "trainer/config/yaml_scalar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

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

bool sexagesimal_float(std::string_view text) {  // [-+]?N(?::[0-5]?[0-9])+\.[0-9_]*
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
         leading_point_float(text) || sexagesimal_float(text) || pyyaml_float(text);
}

/// Decimal digits of a number given by its digits in another base, for what does not fit into
/// int64.
std::string to_decimal(std::string_view digits, unsigned base) {
  std::string decimal = "0";  // least significant digit first
  for (const char c : digits) {
    unsigned carry = is_digit(c) ? static_cast<unsigned>(c - '0')
                                 : static_cast<unsigned>(std::tolower(c) - 'a' + 10);
    for (char& d : decimal) {
      carry += static_cast<unsigned>(d - '0') * base;
      d = static_cast<char>('0' + carry % 10);
      carry /= 10;
    }
    for (; carry > 0; carry /= 10) decimal += static_cast<char>('0' + carry % 10);
  }
  std::reverse(decimal.begin(), decimal.end());
  decimal.erase(0, std::min(decimal.find_first_not_of('0'), decimal.size() - 1));
  return decimal;
}

std::optional<Node> int_from(bool negative, std::string_view digits, unsigned base) {
  constexpr std::string_view kAll = "0123456789abcdef";
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    const auto at = kAll.find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    if (at >= base) return std::nullopt;
  }
  constexpr std::size_t kLongest =
      4000;  // quadratic, and no number in a configuration is that long
  if (digits.size() > kLongest) return std::nullopt;
  std::string signed_text(negative ? 1 : 0, '-');
  signed_text.append(digits);
  int64_t value = 0;
  const auto end = signed_text.data() + signed_text.size();
  const auto result = std::from_chars(signed_text.data(), end, value, static_cast<int>(base));
  if (result.ec == std::errc()) return Node::of(value);
  return Node::big_int(std::string(negative ? 1 : 0, '-').append(to_decimal(digits, base)));
}

/// 1:30 = 90: digits of base 60 from the left.
std::optional<Node> sexagesimal_int(bool negative, std::string_view text) {
  int64_t value = 0;
  for (const std::string& part : [&] {
         std::string dotted(text);
         std::replace(dotted.begin(), dotted.end(), ':', '.');
         return split_path(dotted);
       }()) {
    const auto digit = int_from(false, part, 10);
    if (!digit || !digit->text.empty()) return std::nullopt;
    if (__builtin_mul_overflow(value, int64_t{60}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, digit->integer, &value)) return std::nullopt;
  }
  return Node::of(negative ? -value : value);
}

std::optional<double> decimal_float(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ptr != text.data() + text.size() || text.empty()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // from_chars leaves the value alone; strtod knows whether it is too large or too small.
    return std::strtod(std::string(text).c_str(), nullptr);
  }
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Node> yaml_int(std::string_view text) {
  std::string value = without_underscores(text);
  const bool negative = !value.empty() && value.front() == '-';
  if (!value.empty() && is_sign(value.front())) value.erase(0, 1);
  if (value == "0") return Node::of(int64_t{0});
  if (value.starts_with("0b")) return int_from(negative, std::string_view(value).substr(2), 2);
  if (value.starts_with("0x")) return int_from(negative, std::string_view(value).substr(2), 16);
  if (value.starts_with("0")) return int_from(negative, value, 8);
  if (value.find(':') != std::string::npos) return sexagesimal_int(negative, value);
  return int_from(negative, value, 10);
}

std::optional<Node> yaml_float(std::string_view text) {
  std::string value = without_underscores(text);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const double sign = !value.empty() && value.front() == '-' ? -1.0 : 1.0;
  if (!value.empty() && is_sign(value.front())) value.erase(0, 1);
  if (value == ".inf" || value == "inf" || value == "infinity") {
    return Node::of(sign * std::numeric_limits<double>::infinity());
  }
  if (value == ".nan" || value == "nan") return Node::of(std::numeric_limits<double>::quiet_NaN());
  double total = 0;
  std::string_view rest = value;
  while (true) {
    const std::size_t colon = rest.find(':');
    const auto part = decimal_float(rest.substr(0, colon));
    if (!part) return std::nullopt;
    total = total * 60 + *part;
    if (colon == std::string_view::npos) return Node::of(sign * total);
    rest.remove_prefix(colon + 1);
  }
}

std::optional<Node> yaml_bool(std::string_view text) {
  std::string value(text);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (value == "yes" || value == "true" || value == "on") return Node::of(true);
  if (value == "no" || value == "false" || value == "off") return Node::of(false);
  return std::nullopt;
}

Node type_plain_scalar(std::string_view text) {
  static constexpr std::array<std::string_view, 18> kBools = {
      "yes",   "Yes",   "YES",   "no", "No", "NO", "true", "True", "TRUE",
      "false", "False", "FALSE", "on", "On", "ON", "off",  "Off",  "OFF"};
  static constexpr std::array<std::string_view, 5> kNulls = {"", "~", "null", "Null", "NULL"};
  const auto among = [text](const auto& words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  if (among(kNulls)) return Node::null();
  if (among(kBools)) return *yaml_bool(text);
  std::optional<Node> typed;
  if (looks_like_int(text) && sexagesimal_parts_ok(text)) {
    typed = yaml_int(text);
  } else if (looks_like_float(text)) {
    typed = yaml_float(text);
  }
  return typed ? *typed : Node::of(std::string(text));
}

}  // namespace ddp::train
