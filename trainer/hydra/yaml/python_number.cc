#include "trainer/hydra/yaml/python_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace ddp::train {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without the spaces around it and without underscores between digits; nullopt where an underscore
/// stands elsewhere.
std::optional<std::string> cleaned(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return "";
  text = text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

static_assert(std::numeric_limits<long double>::digits >= 63);

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::optional<int64_t> python_int(std::string_view text) {
  const auto digits = cleaned(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.starts_with('+') && !rest.starts_with("+-")) rest.remove_prefix(1);
  return whole_number<int64_t>(rest);
}

std::optional<double> python_float_from(std::string_view text) {
  const auto digits = cleaned(ascii_lower(text));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  const double sign = rest.starts_with('-') ? -1.0 : 1.0;
  if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.starts_with('-') || rest.starts_with("nan(")) return std::nullopt;
  double value = 0;
  const char* const begin = rest.data();
  const char* const end = begin + rest.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc::invalid_argument || result.ptr != end) return std::nullopt;
  // from_chars leaves the value alone; strtod knows whether it is too large or too small.
  if (result.ec == std::errc::result_out_of_range) value = std::strtod(begin, nullptr);
  return sign * value;
}

std::optional<int64_t> int_of_float(double value) {
  constexpr double kBound = 9223372036854775808.0;  // 2^63
  if (!(value >= -kBound && value < kBound)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<bool> lenient_bool(const Node& node) {
  if (node.kind == Kind::kBool) return node.boolean;
  if (node.kind == Kind::kInt) return node.integer != 0;
  if (node.kind != Kind::kString) return std::nullopt;
  if (const auto number = python_int(node.text)) return *number != 0;
  const std::string word = ascii_lower(node.text);
  if (word == "true" || word == "yes" || word == "on" || word == "y") return true;
  if (word == "false" || word == "no" || word == "off" || word == "n") return false;
  return std::nullopt;
}

bool is_number(const Node& node) {
  return node.kind == Kind::kBool || node.kind == Kind::kInt || node.kind == Kind::kFloat;
}

long double exact_number(const Node& number) {
  if (number.kind == Kind::kFloat) return number.real;
  const bool is_bool = number.kind == Kind::kBool;
  return static_cast<long double>(is_bool ? int64_t{number.boolean} : number.integer);
}

double number_of(const Node& number) { return static_cast<double>(exact_number(number)); }

std::partial_ordering compare_numbers(const Node& a, const Node& b) {
  return exact_number(a) <=> exact_number(b);
}

bool python_equal(const Node& a, const Node& b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind || a.quoted != b.quoted) return false;
  if (a.kind == Kind::kList)
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), python_equal);
  if (a.kind != Kind::kMap) return same_value(a, b);
  const auto has_equal = [&b](const Entry& entry) {
    return std::any_of(b.entries.begin(), b.entries.end(), [&entry](const Entry& other) {
      return same_key(entry.key, other.key) && python_equal(entry.value, other.value);
    });
  };
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), has_equal);
}

bool python_less(const Node& a, const Node& b) {
  if (is_number(a) && is_number(b)) {
    if (std::isnan(exact_number(a)) || std::isnan(exact_number(b)))
      throw std::invalid_argument("nan cannot be sorted; leave it out");
    return compare_numbers(a, b) < 0;
  }
  if (a.kind == Kind::kString && b.kind == Kind::kString && !a.quoted && !b.quoted)
    return a.text < b.text;
  if (a.kind == Kind::kList && b.kind == Kind::kList) {
    const auto [x, y] =
        std::mismatch(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), python_equal);
    return y != b.items.end() && (x == a.items.end() || python_less(*x, *y));
  }
  throw std::invalid_argument(fmt::format("'{}' and '{}' cannot be compared; give numbers or text",
                                          python_type(a), python_type(b)));
}

}  // namespace ddp::train
