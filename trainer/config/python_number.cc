#include "trainer/config/python_number.h"

#include "trainer/config/yaml_scalar.h"

namespace ddp::train {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

/// Every underscore stands between two digits.
bool underscores_ok(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') continue;
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return false;
  }
  return true;
}

}  // namespace

std::optional<Node> python_int(std::string_view raw) {
  std::string_view text = trimmed(raw);
  if (!underscores_ok(text)) return std::nullopt;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789_") != std::string_view::npos)
    return std::nullopt;
  const std::size_t first = text.find_first_not_of("0_");
  std::string digits(negative ? 1 : 0, '-');
  digits.append(first == std::string_view::npos ? "0" : text.substr(first));
  return yaml_int(digits);
}

std::optional<double> python_float_from(std::string_view raw) {
  const std::string_view text = trimmed(raw);
  if (text.empty() || !underscores_ok(text) || text.find(':') != std::string_view::npos)
    return std::nullopt;
  if (text.find(".inf") != std::string_view::npos || text.find(".nan") != std::string_view::npos)
    return std::nullopt;
  const auto parsed = yaml_float(text);
  if (!parsed) return std::nullopt;
  return parsed->real;
}

}  // namespace ddp::train
