#include "trainer/config/override/override_value.h"

#include <fmt/format.h>

#include <stdexcept>

#include "trainer/config/interpolation/value_lexer.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Recursive descent over the tokens of one value.
class ValueParser {
 public:
  ValueParser(std::vector<ValueToken> tokens, const std::string& override_text)
      : tokens_(std::move(tokens)), override_text_(override_text) {}

  OverrideValue parse() {
    OverrideValue value = element(0);
    if (peek() == TokenType::kComma) value = simple_choice(std::move(value));
    if (peek() != TokenType::kEnd) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const {
    throw UserError(fmt::format(
        "command line: {}: unexpected '{}' in the value; quote the value, e.g. 'key=\"text\"'",
        override_text_, at_ < tokens_.size() ? tokens_[at_].text : "end"));
  }

  OverrideValue simple_choice(OverrideValue first) {
    Sweep sweep;
    std::vector<OverrideValue> values = {std::move(first)};
    while (take(TokenType::kComma)) values.push_back(element(0));
    for (OverrideValue& value : values) {
      if (value.sweep) fail();
      sweep.items.push_back(std::move(value.item));
    }
    return {{}, std::move(sweep)};
  }

  TokenType peek() const { return tokens_[at_].type; }
  const ValueToken& next() { return tokens_[at_++]; }
  bool take(TokenType type) {
    if (peek() != type) return false;
    ++at_;
    return true;
  }

  /// The text of the tokens from `begin` on, without the spaces around it.
  std::string source(std::size_t begin) const {
    std::string text;
    for (std::size_t i = begin; i < at_; ++i) text += tokens_[i].text;
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
  }

  OverrideValue element(int depth) {
    constexpr int kDeepest = 100;
    if (depth > kDeepest) fail();
    const bool call = peek() == TokenType::kId && tokens_[at_ + 1].type == TokenType::kParenOpen;
    if (call) return function(depth);
    const std::size_t begin = at_;
    Node value;
    if (take(TokenType::kBracketOpen)) {
      value = list(depth);
    } else if (take(TokenType::kBraceOpen)) {
      value = map(depth);
    } else {
      value = primitive(true);
    }
    return {{std::move(value), source(begin)}, std::nullopt};
  }

  /// Inside a list or a map a sweep has no meaning.
  Node inner(int depth) {
    OverrideValue value = element(depth + 1);
    if (value.sweep) fail();
    return std::move(value.item.value);
  }

  Node list(int depth) {
    Node node = Node::list();
    if (take(TokenType::kBracketClose)) return node;
    do {
      node.items.push_back(inner(depth));
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
      set_entry(node, std::move(key), inner(depth));
    } while (take(TokenType::kComma));
    if (!take(TokenType::kBraceClose)) fail();
    return node;
  }

  OverrideValue function(int depth) {
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
      call.arguments.push_back({std::move(name), element(depth + 1)});
    }
    return evaluate_override_call(call);
  }

  Node primitive(bool is_value) {
    if (is_value && peek() == TokenType::kQuoted) {
      Node node = Node::of(unquote_override(next().text));
      node.quoted = true;
      return node;
    }
    std::vector<ValueToken> parts;
    while (is_primitive_part(peek(), is_value)) parts.push_back(next());
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

}  // namespace

OverrideValue parse_override_value(const std::string& text, const std::string& override_text) {
  auto tokens = lex_override_value(text, override_text);
  if (tokens.size() == 1) return {{Node::of(std::string()), ""}, std::nullopt};
  try {
    return ValueParser(std::move(tokens), override_text).parse();
  } catch (const std::invalid_argument& e) {
    throw UserError(fmt::format("command line: {}: {}", override_text, e.what()));
  }
}

}  // namespace ddp::train
