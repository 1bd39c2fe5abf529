#include "trainer/hydra/yaml/yaml_scalar.h"

#include <algorithm>
#include <initializer_list>
#include <regex>
#include <string>

#include "trainer/hydra/yaml/python_number.h"

namespace ddp::train {
namespace {

constexpr std::size_t kLongest = 100;  // std::regex recurses; no number is longer

bool matches(std::string_view text, const std::regex& pattern) {
  return text.size() <= kLongest && std::regex_match(text.begin(), text.end(), pattern);
}

bool looks_like_int(std::string_view text) {
  static const std::regex pattern(
      "[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*(:[0-5]?[0-9])*)");
  return matches(text, pattern);
}

/// With a point (an exponent then has a sign, unless the digits are well grouped), with an exponent
/// alone, from a point on, in base 60, or by name.
bool looks_like_float(std::string_view text) {
  static const std::regex pattern(
      "[-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?"
      "|[-+]?[0-9]+(_[0-9]+)*(\\.[0-9_]*)?[eE][-+]?[0-9]+"
      "|\\.[0-9][0-9_]*([eE][-+][0-9]+)?"
      "|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*"
      "|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)");
  return matches(text, pattern);
}

bool is_among(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::string lower_without_underscores(std::string_view text) {
  std::string out = ascii_lower(text);
  std::erase(out, '_');
  return out;
}

bool take_sign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

/// 1:30 is 90, 1:30.5 is 90.5.
std::optional<double> base_60(std::string_view text) {
  double total = 0;
  while (true) {
    const std::size_t colon = text.find(':');
    const auto part = python_float_from(text.substr(0, colon));
    if (!part) return std::nullopt;
    total = total * 60 + *part;
    if (colon == std::string_view::npos) return total;
    text.remove_prefix(colon + 1);
  }
}

std::optional<uint64_t> unsigned_int_value(std::string_view text) {
  if (text.starts_with("0b")) return whole_number<uint64_t>(text.substr(2), 2);
  if (text.starts_with("0x")) return whole_number<uint64_t>(text.substr(2), 16);
  if (text.size() > 1 && text.starts_with('0')) return whole_number<uint64_t>(text, 8);
  if (text.find(':') == std::string_view::npos) return whole_number<uint64_t>(text);
  const auto value = base_60(text);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!value || *value > kExact) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

std::optional<Node> to_int(std::string_view text) {
  const std::string cleaned = lower_without_underscores(text);
  std::string_view rest = cleaned;
  const bool negative = take_sign(rest);
  const auto value = unsigned_int_value(rest);
  const uint64_t most = uint64_t{1} << 63U;  // of a negative number; one less of others
  if (!value || *value > most - (negative ? 0 : 1)) return std::nullopt;
  return Node::of(static_cast<int64_t>(negative ? 0 - *value : *value));
}

std::optional<Node> to_float(std::string_view text) {
  const std::string cleaned = lower_without_underscores(text);
  std::string_view rest = cleaned;
  const bool negative = take_sign(rest);
  if (rest == ".inf" || rest == ".nan") rest.remove_prefix(1);
  const auto value = base_60(rest);
  if (!value) return std::nullopt;
  return Node::of(negative ? -*value : *value);
}

std::optional<Node> to_bool(std::string_view text) {
  const std::string word = ascii_lower(text);
  if (is_among(word, {"yes", "true", "on"})) return Node::of(true);
  if (is_among(word, {"no", "false", "off"})) return Node::of(false);
  return std::nullopt;
}

/// yes, Yes and YES, but not yEs.
bool looks_like_bool(std::string_view text) {
  if (text.empty() || !to_bool(text)) return false;
  const auto is_lower = [](char c) { return c >= 'a'; };
  const std::string_view tail = text.substr(1);
  const bool lower_tail = std::all_of(tail.begin(), tail.end(), is_lower);
  return lower_tail || std::none_of(text.begin(), text.end(), is_lower);
}

}  // namespace

std::optional<Node> plain_scalar(std::string_view text) {
  if (text.empty() || is_among(text, {"~", "null", "Null", "NULL"})) return Node::null();
  if (looks_like_bool(text)) return to_bool(text);
  if (looks_like_int(text)) return to_int(text);
  if (looks_like_float(text)) return to_float(text);
  return Node::of(std::string(text));
}

std::optional<Node> tagged_scalar(std::string_view tag, std::string_view text) {
  if (tag == "str") return Node::of(std::string(text));
  if (tag == "null") return Node::null();
  if (tag == "bool") return to_bool(text);
  if (tag == "int") return to_int(text);
  if (tag == "float") return to_float(text);
  return std::nullopt;
}

}  // namespace ddp::train
