#include "trainer/config/interpolation/value_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "trainer/config/yaml/python_number.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_space(char c) { return c == ' ' || c == '\t'; }

/// Each match_* returns how many characters from the start belong to the token, 0 for none.
std::size_t spaces(std::string_view s, std::size_t from = 0) {
  std::size_t n = from;
  while (n < s.size() && is_space(s[n])) ++n;
  return n - from;
}

std::size_t digits(std::string_view s, std::size_t from) {  // DIGIT (('_')? DIGIT)*
  std::size_t n = from;
  while (n < s.size() && (is_ascii_digit(s[n]) || (n > from && s[n] == '_' && n + 1 < s.size() &&
                                                   is_ascii_digit(s[n + 1]))))
    ++n;
  return n - from;
}

std::size_t unsigned_int(std::string_view s, std::size_t from) {  // '0' | [1-9] (('_')? DIGIT)*
  if (from >= s.size() || !is_ascii_digit(s[from])) return 0;
  return s[from] == '0' ? 1 : digits(s, from);
}

std::size_t match_int(std::string_view s) {
  const std::size_t sign = !s.empty() && (s[0] == '+' || s[0] == '-') ? 1 : 0;
  const std::size_t n = unsigned_int(s, sign);
  return n == 0 ? 0 : sign + n;
}

std::size_t point_float(std::string_view s, std::size_t from) {
  const std::size_t whole = unsigned_int(s, from);
  const std::size_t point = from + whole;
  if (point >= s.size() || s[point] != '.') return 0;
  const std::size_t fraction = digits(s, point + 1);
  return whole + fraction == 0 ? 0 : whole + 1 + fraction;
}

std::size_t match_float(std::string_view s) {
  const std::size_t sign = !s.empty() && (s[0] == '+' || s[0] == '-') ? 1 : 0;
  const std::string word = ascii_lower(s.substr(sign, 3));
  if (word == "inf" || word == "nan") return sign + 3;
  const std::size_t point = point_float(s, sign);
  const std::size_t mantissa = std::max(point, unsigned_int(s, sign));
  if (mantissa == 0) return 0;
  std::size_t end = sign + mantissa;
  if (end < s.size() && (s[end] == 'e' || s[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < s.size() && (s[exponent] == '+' || s[exponent] == '-')) ++exponent;
    const std::size_t n = digits(s, exponent);
    if (n > 0) return exponent + n;
  }
  return point > 0 ? sign + point : 0;
}

std::size_t match_word(std::string_view s, std::string_view word) {
  return ascii_lower(s.substr(0, word.size())) == word ? word.size() : 0;
}

std::size_t match_id(std::string_view s) {
  if (s.empty() || !(is_alpha(s[0]) || s[0] == '_')) return 0;
  std::size_t n = 1;
  while (n < s.size() && (is_alpha(s[n]) || is_ascii_digit(s[n]) || s[n] == '_' || s[n] == '-'))
    ++n;
  return n;
}

std::size_t match_escape(std::string_view s) {
  std::size_t n = 0;
  while (n + 1 < s.size() && s[n] == '\\' &&
         std::string_view("\\()[]{}:=, \t").find(s[n + 1]) != std::string_view::npos)
    n += 2;
  return n;
}

std::size_t match_quoted(std::string_view s) {
  if (s.empty() || (s[0] != '"' && s[0] != '\'')) return 0;
  std::size_t backslashes = 0;
  for (std::size_t i = 1; i < s.size(); ++i) {
    if (s[i] == s[0] && backslashes % 2 == 0) return i + 1;
    backslashes = s[i] == '\\' ? backslashes + 1 : 0;
  }
  return 0;
}

std::size_t match_interpolation(std::string_view s) {
  if (!s.starts_with("${")) return 0;
  const std::size_t close = s.find('}');
  return close == std::string_view::npos || close == 2 ? 0 : close + 1;
}

/// WS? c WS?, each side as the grammar allows it.
std::size_t match_sign(std::string_view s, char c, bool space_before, bool space_after) {
  const std::size_t before = space_before ? spaces(s) : 0;
  if (before >= s.size() || s[before] != c) return 0;
  return before + 1 + (space_after ? spaces(s, before + 1) : 0);
}

std::size_t match_interpolation_open(std::string_view s) {
  return s.starts_with("${") ? 2 + spaces(s, 2) : 0;
}

std::size_t one_of(std::string_view s, std::string_view set) {
  return set.find(s.front()) != std::string_view::npos ? 1 : 0;
}

}  // namespace

ValueToken next_value_token(std::string_view rest, Grammar grammar) {
  const std::string_view s = rest;
  const bool hydra = grammar == Grammar::kHydra;
  ValueToken best;
  if (s.empty()) return best;
  const auto offer = [&](TokenType type, std::size_t length) {
    if (length > best.text.size()) best = {type, std::string(s.substr(0, length))};
  };
  if (hydra) offer(TokenType::kParenOpen, match_sign(s, '(', true, true));
  if (!hydra) offer(TokenType::kInterpolationOpen, match_interpolation_open(s));
  offer(TokenType::kComma, match_sign(s, ',', true, true));
  if (hydra) offer(TokenType::kParenClose, match_sign(s, ')', true, false));
  offer(TokenType::kBracketOpen, match_sign(s, '[', false, true));
  offer(TokenType::kBracketClose, match_sign(s, ']', true, false));
  offer(TokenType::kBraceOpen, match_sign(s, '{', false, true));
  offer(TokenType::kBraceClose, match_sign(s, '}', true, false));
  offer(TokenType::kColon, match_sign(s, ':', true, true));
  if (hydra) offer(TokenType::kEqual, match_sign(s, '=', true, true));
  offer(TokenType::kFloat, match_float(s));
  offer(TokenType::kInt, match_int(s));
  offer(TokenType::kBool, std::max(match_word(s, "true"), match_word(s, "false")));
  offer(TokenType::kNull, match_word(s, "null"));
  offer(TokenType::kOther, one_of(s, "/-\\+.$%*@?|"));
  offer(TokenType::kId, match_id(s));
  offer(TokenType::kEscape, match_escape(s));
  offer(TokenType::kSpace, spaces(s));
  if (!hydra) offer(TokenType::kQuoteOpen, one_of(s, "'\""));
  if (hydra) offer(TokenType::kQuoted, match_quoted(s));
  if (hydra) offer(TokenType::kInterpolation, match_interpolation(s));
  return best;
}

std::vector<ValueToken> lex_override_value(std::string_view value,
                                           const std::string& override_text) {
  std::vector<ValueToken> tokens;
  value.remove_prefix(spaces(value));
  while (!value.empty()) {
    ValueToken token = next_value_token(value, Grammar::kHydra);
    if (token.text.empty()) {
      throw UserError(fmt::format(
          "command line: {}: unexpected '{}' in the value; quote the value, e.g. 'key=\"text\"'",
          override_text, value.substr(0, 20)));
    }
    value.remove_prefix(token.text.size());
    tokens.push_back(std::move(token));
  }
  tokens.push_back({TokenType::kEnd, "end of the value"});
  return tokens;
}

bool is_primitive_part(TokenType type, bool is_value) {
  switch (type) {
    case TokenType::kId:
    case TokenType::kNull:
    case TokenType::kInt:
    case TokenType::kFloat:
    case TokenType::kBool:
    case TokenType::kOther:
    case TokenType::kEscape:
    case TokenType::kSpace:
      return true;
    case TokenType::kColon:
    case TokenType::kInterpolation:
    case TokenType::kInterpolationOpen:
      return is_value;
    default:
      return false;
  }
}

Node typed_token(const ValueToken& token) {
  const std::string word = ascii_lower(token.text);
  switch (token.type) {
    case TokenType::kNull:
      return Node::null();
    case TokenType::kBool:
      return Node::of(word == "true");
    case TokenType::kInt: {
      if (const auto value = python_int(token.text)) return Node::of(*value);
      throw std::invalid_argument(
          fmt::format("{} does not fit in 64 bits; quote it if it is text", token.text));
    }
    case TokenType::kFloat: {
      const auto value = python_float_from(token.text);
      return value ? Node::of(*value) : Node::of(token.text);
    }
    default:
      return Node::of(token_text(token));
  }
}

std::string token_text(const ValueToken& token) {
  if (token.type != TokenType::kEscape) return token.text;
  std::string out;
  for (std::size_t i = 1; i < token.text.size(); i += 2) out += token.text[i];
  return out;
}

std::string unquote_override(std::string_view quoted) {
  const char quote = quoted.front();
  const std::string_view inside = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < inside.size();) {
    std::size_t run = 0;
    while (i + run < inside.size() && inside[i + run] == '\\') ++run;
    const std::size_t after = i + run;
    const bool before_quote = after < inside.size() ? inside[after] == quote : true;
    out.append(before_quote ? run / 2 : run, '\\');
    if (after < inside.size()) out += inside[after];
    i = after + 1;
  }
  return out;
}

}  // namespace ddp::train
