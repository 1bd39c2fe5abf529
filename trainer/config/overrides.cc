#include "trainer/config/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "trainer/config/override_functions.h"
#include "trainer/config/value_lexer.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '$';
}

bool is_word_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

bool is_index(std::string_view part) {
  if (part.empty() || (part.front() == '0' && part.size() > 1)) return false;
  return part.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_key_part(std::string_view part) {
  return !part.empty() && is_word_start(part.front()) &&
         std::all_of(part.begin(), part.end(), is_word_char);
}

/// Nothing, a word, or words and indices with dots between.
bool valid_package(const std::string& text) {
  if (text.empty()) return true;
  const auto parts = split_path(text);
  if (parts.size() == 1) return is_key_part(parts[0]);
  return std::all_of(parts.begin(), parts.end(),
                     [](const std::string& part) { return is_key_part(part) || is_index(part); });
}

/// A package, or (a config group) words with slashes between.
bool valid_key(const std::string& key) {
  if (key.find('/') == std::string::npos) return valid_package(key);
  std::string dotted = key;
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  const auto words = split_path(dotted);
  return key.find_first_of(".$") == std::string::npos &&
         std::all_of(words.begin(), words.end(), is_key_part);
}

/// Recursive descent over the tokens of one value.
class ValueParser {
 public:
  ValueParser(std::vector<ValueToken> tokens, const std::string& override_text)
      : tokens_(std::move(tokens)), override_text_(override_text) {}

  Node parse() {
    Node value = element(0);
    if (peek() == TokenType::kComma) fail_sweep();
    if (peek() != TokenType::kEnd) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const {
    throw UserError(
        fmt::format("command line: {}: Error parsing override: unexpected '{}' in the value; put "
                    "the value into quotes, "
                    "e.g. 'key=\"text\"'",
                    override_text_, at_ < tokens_.size() ? tokens_[at_].text : "end"));
  }

  [[noreturn]] void fail_sweep() const {
    throw UserError(
        fmt::format("command line: {}: Ambiguous value for argument; for a list use "
                    "key=[value1,value2], for a text with "
                    "commas quote it: 'key=\"value1,value2\"'",
                    override_text_));
  }

  TokenType peek() const { return tokens_[at_].type; }
  const ValueToken& next() { return tokens_[at_++]; }
  bool take(TokenType type) {
    if (peek() != type) return false;
    ++at_;
    return true;
  }

  Node element(int depth) {
    constexpr int kDeepest = 100;
    if (depth > kDeepest) fail();
    if (take(TokenType::kBracketOpen)) return list(depth);
    if (take(TokenType::kBraceOpen)) return map(depth);
    const bool call = peek() == TokenType::kId && tokens_[at_ + 1].type == TokenType::kParenOpen;
    if (call) return function(depth);
    return primitive(true);
  }

  Node list(int depth) {
    Node node = Node::list();
    if (take(TokenType::kBracketClose)) return node;
    do {
      node.items.push_back(element(depth + 1));
    } while (take(TokenType::kComma));
    if (!take(TokenType::kBracketClose)) fail();
    return node;
  }

  Node map(int depth) {
    Node node = Node::map();
    if (take(TokenType::kBraceClose)) return node;
    do {
      Node key = primitive(false);
      if (!take(TokenType::kColon)) fail();
      if (key.kind == Kind::kNull) fail();
      set_entry(node, std::move(key), element(depth + 1));
    } while (take(TokenType::kComma));
    if (!take(TokenType::kBraceClose)) fail();
    return node;
  }

  Node function(int depth) {
    OverrideCall call;
    call.name = next().text;
    ++at_;  // the parenthesis
    while (!take(TokenType::kParenClose)) {
      if (!call.arguments.empty() && !take(TokenType::kComma)) fail();
      std::string name;
      if (peek() == TokenType::kId && tokens_[at_ + 1].type == TokenType::kEqual) {
        name = next().text;
        ++at_;
      }
      Node value = element(depth + 1);
      call.arguments.emplace_back(std::move(name), std::move(value));
    }
    try {
      return evaluate_override_call(call);
    } catch (const std::invalid_argument& e) {
      throw UserError(
          fmt::format("command line: {}: Error parsing override: {}", override_text_, e.what()));
    }
  }

  bool at_primitive(bool colon_allowed) const {
    switch (peek()) {
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
        return colon_allowed;
      default:
        return false;
    }
  }

  Node primitive(bool is_value) {
    if (is_value && peek() == TokenType::kQuoted) return Node::of(unquote_override(next().text));
    std::vector<ValueToken> parts;
    while (at_primitive(is_value)) parts.push_back(next());
    if (!parts.empty() && parts.front().type == TokenType::kSpace) parts.erase(parts.begin());
    if (!parts.empty() && parts.back().type == TokenType::kSpace) parts.pop_back();
    if (parts.empty()) fail();
    if (parts.size() == 1) return typed_token(parts.front());
    std::string text;
    for (const ValueToken& part : parts) text += token_text(part);
    return Node::of(std::move(text));
  }

  std::vector<ValueToken> tokens_;
  const std::string& override_text_;
  std::size_t at_ = 0;
};

void set_places(Node& node, const Place& place) {
  node.place = place;
  for (Node& item : node.items) set_places(item, place);
  for (Entry& entry : node.entries) {
    entry.key.place = place;
    set_places(entry.value, place);
  }
}

OverrideType take_prefix(std::string_view& rest) {
  const auto take = [&rest](std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  };
  if (take("++")) return OverrideType::kForceAdd;
  if (take("+")) return OverrideType::kAdd;
  if (take("~")) return OverrideType::kDelete;
  return OverrideType::kChange;
}

}  // namespace

Override parse_override(const std::string& text) {
  Override result;
  result.text = text;
  std::string_view rest = text;
  result.type = take_prefix(rest);
  const std::size_t equal = rest.find('=');
  result.has_value = equal != std::string_view::npos;
  const std::string_view name = rest.substr(0, equal);
  const std::size_t at = name.find('@');
  result.key = std::string(name.substr(0, at));
  if (at != std::string_view::npos) result.package = std::string(name.substr(at + 1));
  if (!result.has_value && result.type != OverrideType::kDelete) {
    throw UserError(fmt::format(
        "command line: {}: not an override; write key=value, e.g. trainer_config.seed=1", text));
  }
  if (result.key.empty() || !valid_key(result.key) || !valid_package(result.package.value_or(""))) {
    throw UserError(
        fmt::format("command line: {}: '{}' is not a key; write section.key=value, without spaces",
                    text, name));
  }
  if (result.has_value) {
    auto tokens = lex_override_value(rest.substr(equal + 1), text);
    const bool empty = tokens.size() == 1;
    result.value = empty ? Node::of(std::string()) : ValueParser(std::move(tokens), text).parse();
  }
  const auto source = std::make_shared<const std::string>("command line: " + text);
  set_places(result.value, Place{source, 0, 0});
  return result;
}

}  // namespace ddp::train
