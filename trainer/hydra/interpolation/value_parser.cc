#include "trainer/hydra/interpolation/value_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "trainer/hydra/interpolation/value_lexer.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr int kDeepestValue = 400;

Expr literal(std::string text) {
  Expr expr;
  expr.literal = Node::of(std::move(text));
  return expr;
}

Expr of_kind(ExprKind kind, std::vector<Expr> children) {
  Expr expr;
  expr.kind = kind;
  expr.children = std::move(children);
  return expr;
}

bool is_literal(const Expr& expr) { return expr.kind == ExprKind::kLiteral; }

/// Recursive descent over the tokens, and over the characters of quoted texts and of keys.
class ValueParser {
 public:
  ValueParser(std::string_view text, Grammar grammar) : text_(text), grammar_(grammar) {}

  Expr whole_text() { return text('\0'); }

  Expr whole_element() {
    Expr expr = element();
    check_end();
    return expr;
  }

  std::vector<Expr> override_values() {
    skip_spaces();
    if (done()) return {literal("")};
    std::vector<Expr> values;
    do {
      values.push_back(element_with_source());
    } while (take(','));
    check_end();
    return values;
  }

 private:
  bool is_hydra() const { return grammar_ == Grammar::kHydra; }
  std::string_view rest() const { return text_.substr(at_); }
  bool done() const { return at_ >= text_.size(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument(fmt::format(
        "{} in '{}'; {}", what, shown(text_),
        is_hydra() ? "quote the value, e.g. 'key=\"text\"'" : "write \\${ for a literal ${"));
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(fmt::format("expected {} at '{}'", what, done() ? "the end" : shown(rest())));
  }
  void check_end() const {
    if (!done()) fail(fmt::format("unexpected '{}'", shown(rest())));
  }

  void enter() {
    if (++depth_ > kDeepestValue) fail("nested too deeply");
  }

  ValueToken peek() const { return next_value_token(rest(), grammar_); }
  void skip(const ValueToken& token) { at_ += token.text.size(); }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size()); }

  bool take(char sign) {
    const ValueToken token = peek();
    if (token.sign == sign) skip(token);
    return token.sign == sign;
  }

  /// Without the spaces around it.
  bool take_char(char c) {
    const bool there = rest().starts_with(c);
    if (there) ++at_;
    return there;
  }

  bool comes_before(const ValueToken& token, char sign) const {
    return next_value_token(rest().substr(token.text.size()), grammar_).sign == sign;
  }

  /// The text of a whole value (`quote` = 0) or up to the closing quote: backslashes count only
  /// before `${`, before the quote and at the end of a quoted text.
  Expr text(char quote) {
    std::vector<Expr> parts;
    std::string plain;
    const auto flush = [&] {
      if (!plain.empty()) parts.push_back(literal(std::move(plain)));
      plain.clear();
    };
    while (quote == '\0' ? !done() : !take_char(quote)) {
      if (done()) fail_expected("a closing quote");
      if (text_[at_] == '\\') {
        backslashes(quote, plain);
      } else if (at_interpolation()) {
        flush();
        parts.push_back(interpolation());
      } else {
        plain += text_[at_++];
      }
    }
    flush();
    if (parts.size() == 1 && quote == '\0') return std::move(parts.front());
    return of_kind(ExprKind::kConcat, std::move(parts));
  }

  bool at_interpolation() const { return !is_hydra() && rest().starts_with("${"); }

  void backslashes(char quote, std::string& plain) {
    const std::size_t n = std::min(rest().find_first_not_of('\\'), rest().size());
    at_ += n;
    const bool before_quote = quote != '\0' && rest().starts_with(quote);
    if (!before_quote && !at_interpolation()) {
      plain.append(n, '\\');
      return;
    }
    plain.append(n / 2, '\\');
    if (n % 2 == 0) return;
    const std::size_t escaped = before_quote ? 1 : 2;
    plain += rest().substr(0, escaped);
    at_ += escaped;
  }

  Expr interpolation() {
    enter();
    at_ += 2;
    skip_spaces();
    Expr path = of_kind(ExprKind::kReference, {});
    while (take_char('.')) path.children.push_back(literal("."));
    bool may_be_name = path.children.empty() && !rest().starts_with('[');
    if (!subscript(path)) path.children.push_back(key());
    while (!take('}')) {
      if (may_be_name && take(':')) return call(std::move(path));
      if (take_char('.')) {
        path.children.push_back(literal("."));
        path.children.push_back(key());
      } else if (subscript(path)) {
        may_be_name = false;
      } else {
        fail_expected("}");
      }
    }
    --depth_;
    return path;
  }

  bool subscript(Expr& path) {
    if (!take_char('[')) return false;
    path.children.push_back(literal("["));
    path.children.push_back(key());
    if (!take_char(']')) fail_expected("]");
    path.children.push_back(literal("]"));
    return true;
  }

  /// A word or a nested interpolation.
  Expr key() {
    if (at_interpolation()) return interpolation();
    const std::size_t end = std::min(text_.find_first_of("\\{}()[]:. \t'\"", at_), text_.size());
    if (at_ == end) fail_expected("a key");
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return literal(std::string(word));
  }

  Expr call(Expr name) {
    Expr expr = of_kind(ExprKind::kCall, {std::move(name)});
    for (Expr& argument : sequence('}')) expr.children.push_back(std::move(argument));
    --depth_;
    return expr;
  }

  /// Elements between commas up to `close`; what is left out is an empty text to OmegaConf.
  std::vector<Expr> sequence(char close) {
    std::vector<Expr> elements;
    if (take(close)) return elements;
    do {
      const char next = peek().sign;
      const bool left_out = !is_hydra() && (next == ',' || next == close);
      elements.push_back(left_out ? literal("") : element());
    } while (take(','));
    if (!take(close)) fail_expected(fmt::format("',' or '{}'", close));
    return elements;
  }

  Expr element() {
    enter();
    Expr expr = element_inside();
    --depth_;
    return expr;
  }

  Expr element_inside() {
    const ValueToken token = peek();
    if (token.type == TokenType::kId && comes_before(token, '(')) return function(token);
    if (take('[')) return of_kind(ExprKind::kList, sequence(']'));
    if (take('{')) return map();
    if (token.sign != '"' && token.sign != '\'') return primitive(true);
    skip(token);
    Expr quoted = text(token.sign);
    if (!is_hydra()) return quoted;
    Expr expr = quoted.children.empty() ? literal("") : std::move(quoted.children.front());
    expr.literal.quoted = true;
    return expr;
  }

  Expr element_with_source() {
    const std::size_t begin = at_;
    Expr expr = element();
    const std::string_view source = text_.substr(begin, at_ - begin);
    const std::size_t first = std::min(source.find_first_not_of(" \t"), source.size());
    expr.source = source.substr(first, source.find_last_not_of(" \t") + 1 - first);
    return expr;
  }

  Expr map() {
    Expr expr = of_kind(ExprKind::kMap, {});
    if (take('}')) return expr;
    do {
      expr.keys.push_back(primitive(false).literal);
      if (!take(':')) fail_expected(":");
      if (is_hydra() && expr.keys.back().kind == Kind::kNull)
        fail_expected("a key that is not null");
      expr.children.push_back(element());
    } while (take(','));
    if (!take('}')) fail_expected("',' or '}'");
    return expr;
  }

  Expr function(const ValueToken& name) {
    Expr expr = of_kind(ExprKind::kFunction, {});
    expr.literal = Node::of(std::string(name.text));
    skip(name);
    take('(');
    if (take(')')) return expr;
    do {
      const ValueToken word = peek();
      const bool named = word.type == TokenType::kId && comes_before(word, '=');
      if (named) skip(word);
      if (named) take('=');
      expr.keys.push_back(named ? Node::of(std::string(word.text)) : Node::null());
      expr.children.push_back(element_with_source());
    } while (take(','));
    if (!take(')')) fail_expected("',' or ')'");
    return expr;
  }

  /// One token keeps its type, several are a text. To Hydra the spaces around are not part of it.
  Expr primitive(bool is_value) {
    if (is_hydra()) skip_spaces();
    std::vector<Expr> parts;
    std::vector<ValueToken> tokens;
    while (is_primitive_part(peek(), is_value)) {
      tokens.push_back(peek());
      if (at_interpolation()) {
        parts.push_back(interpolation());
      } else {
        skip(tokens.back());
        parts.push_back(literal(token_text(tokens.back())));
      }
    }
    if (is_hydra() && !tokens.empty() && tokens.back().type == TokenType::kSpace) parts.pop_back();
    if (parts.empty()) fail_expected("a value");
    if (parts.size() == 1 && tokens.front().type == TokenType::kSpace)
      fail_expected("more than spaces");
    if (parts.size() == 1 && is_literal(parts.front()))
      parts.front().literal = typed_token(tokens.front());
    return parts.size() == 1 ? std::move(parts.front()) : joined(std::move(parts));
  }

  static Expr joined(std::vector<Expr> parts) {
    if (!std::all_of(parts.begin(), parts.end(), is_literal))
      return of_kind(ExprKind::kConcat, std::move(parts));
    std::string text;
    for (const Expr& part : parts) text += part.literal.text;
    return literal(std::move(text));
  }

  std::string_view text_;
  Grammar grammar_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expr parse_interpolated(std::string_view text) {
  return ValueParser(text, Grammar::kOmegaConf).whole_text();
}

Expr parse_element(std::string_view text) {
  return ValueParser(text, Grammar::kOmegaConf).whole_element();
}

std::vector<Expr> parse_override_values(std::string_view text) {
  return ValueParser(text, Grammar::kHydra).override_values();
}

}  // namespace ddp::train
