#include "trainer/hydra/interpolation/value_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "trainer/hydra/yaml/python_number.h"

namespace ddp::train {
namespace {

constexpr std::size_t kLongestNumber = 100;  // std::regex recurses; a longer one is text

bool is_in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

std::size_t count_while(std::string_view text, bool (*belongs)(char)) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), belongs) -
                                  text.begin());
}

std::size_t spaces(std::string_view text) {
  return count_while(text, [](char c) { return is_in(c, " \t"); });
}

/// Each match_* returns how many characters from the start belong to the token, 0 for none.
std::size_t match_number(std::string_view text, const std::regex& pattern) {
  std::match_results<std::string_view::const_iterator> match;
  text = text.substr(0, kLongestNumber);
  const auto flags = std::regex_constants::match_continuous;
  return std::regex_search(text.begin(), text.end(), match, pattern, flags)
             ? static_cast<std::size_t>(match.length())
             : 0;
}

#define DDP_DIGITS "[0-9](_?[0-9])*"
#define DDP_WHOLE "(0|[1-9](_?[0-9])*)"
#define DDP_POINT "(" DDP_WHOLE "?\\." DDP_DIGITS "|" DDP_WHOLE "\\.)"

std::size_t match_float(std::string_view text) {
  static const std::regex pattern("[+-]?((" DDP_POINT "|" DDP_WHOLE ")e[+-]?" DDP_DIGITS
                                  "|" DDP_POINT "|inf|nan)",
                                  std::regex::icase);
  return match_number(text, pattern);
}

std::size_t match_int(std::string_view text) {
  static const std::regex pattern("[+-]?" DDP_WHOLE);
  return match_number(text, pattern);
}

#undef DDP_POINT
#undef DDP_WHOLE
#undef DDP_DIGITS

std::size_t match_word(std::string_view text, std::string_view word) {
  return ascii_lower(text.substr(0, word.size())) == word ? word.size() : 0;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '-';
}

std::size_t match_id(std::string_view text) {
  return is_digit(text[0]) || text[0] == '-' ? 0 : count_while(text, is_word_char);
}

std::size_t match_escape(std::string_view text) {
  std::size_t n = 0;
  while (n + 1 < text.size() && text[n] == '\\' && is_in(text[n + 1], "\\()[]{}:=, \t")) n += 2;
  return n;
}

std::size_t match_interpolation(std::string_view text, Grammar grammar) {
  if (!text.starts_with("${")) return 0;
  if (grammar == Grammar::kOmegaConf) return 2;
  const std::size_t close = text.find('}');
  return close == std::string_view::npos || close == 2 ? 0 : close + 1;
}

/// Spaces belong to a sign, but for those outside of a bracket.
std::size_t match_sign(std::string_view text, Grammar grammar) {
  const std::size_t before = spaces(text);
  const char sign = before < text.size() ? text[before] : '\0';
  if (!is_in(sign, grammar == Grammar::kHydra ? ",()[]{}:='\"" : ",[]{}:'\"")) return 0;
  if (before > 0 && is_in(sign, "[{'\"")) return 0;
  return before + 1 + (is_in(sign, ")]}'\"") ? 0 : spaces(text.substr(before + 1)));
}

}  // namespace

ValueToken next_value_token(std::string_view rest, Grammar grammar) {
  ValueToken best;
  if (rest.empty()) return best;
  if (const std::size_t length = match_sign(rest, grammar); length > 0)
    return {TokenType::kSign, rest.substr(0, length), rest[spaces(rest)]};
  const auto offer = [&](TokenType type, std::size_t length) {
    if (length > best.text.size()) best = {type, rest.substr(0, length)};
  };
  offer(TokenType::kFloat, match_float(rest));
  offer(TokenType::kInt, match_int(rest));
  offer(TokenType::kBool, std::max(match_word(rest, "true"), match_word(rest, "false")));
  offer(TokenType::kNull, match_word(rest, "null"));
  offer(TokenType::kOther, is_in(rest[0], "/-\\+.$%*@?|") ? 1 : 0);
  offer(TokenType::kId, match_id(rest));
  offer(TokenType::kEscape, match_escape(rest));
  offer(TokenType::kSpace, spaces(rest));
  offer(TokenType::kInterpolation, match_interpolation(rest, grammar));
  return best;
}

bool is_primitive_part(const ValueToken& token, bool is_value) {
  if (token.type == TokenType::kSign) return is_value && token.sign == ':';
  return token.type != TokenType::kEnd && (is_value || token.type != TokenType::kInterpolation);
}

Node typed_token(const ValueToken& token) {
  switch (token.type) {
    case TokenType::kNull:
      return Node::null();
    case TokenType::kBool:
      return Node::of(ascii_lower(token.text) == "true");
    case TokenType::kInt: {
      if (const auto value = python_int(token.text)) return Node::of(*value);
      throw std::invalid_argument(
          fmt::format("{} does not fit in 64 bits; quote it if it is text", token.text));
    }
    case TokenType::kFloat:
      return Node::of(python_float_from(token.text).value());
    default:
      return Node::of(token_text(token));
  }
}

std::string token_text(const ValueToken& token) {
  if (token.type != TokenType::kEscape) return std::string(token.text);
  std::string out;
  for (std::size_t i = 1; i < token.text.size(); i += 2) out += token.text[i];
  return out;
}

}  // namespace ddp::train
