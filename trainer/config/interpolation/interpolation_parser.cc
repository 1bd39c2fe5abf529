#include "trainer/config/interpolation/interpolation_parser.h"

#include <fmt/format.h>

#include <stdexcept>

#include "trainer/config/interpolation/value_lexer.h"
#include "trainer/runtime/message.h"

namespace ddp::train {
namespace {

constexpr int kDeepestInterpolation = 400;

Expr literal(std::string text) {
  Expr expr;
  expr.literal = Node::of(std::move(text));
  return expr;
}

Expr concat(std::vector<Expr> parts) {
  Expr expr;
  expr.kind = ExprKind::kConcat;
  expr.children = std::move(parts);
  return expr;
}

bool is_interpolation(const Expr& expr) {
  return expr.kind == ExprKind::kReference || expr.kind == ExprKind::kCall;
}

/// Recursive descent over the characters; each grammar mode of ANTLR's lexer is a function here.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expr whole_text() { return text('\0'); }

  Expr whole_element() {
    Expr expr = element();
    if (at_ != text_.size()) fail("the end");
    return expr;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  bool done() const { return at_ >= text_.size(); }

  [[noreturn]] void fail(std::string_view expected) const {
    throw std::invalid_argument(fmt::format("expected {} at '{}' in '{}'", expected,
                                            done() ? "the end" : shown(rest()), shown(text_)));
  }

  [[noreturn]] void fail_deep() const {
    throw std::invalid_argument(fmt::format("nested too deeply in '{}'", shown(text_)));
  }

  bool take(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void skip_spaces() {
    while (!done() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  /// Takes `sign` with the spaces before it; takes nothing otherwise.
  bool take_spaced(char sign) {
    const std::size_t before = at_;
    skip_spaces();
    if (!done() && text_[at_] == sign) {
      ++at_;
      return true;
    }
    at_ = before;
    return false;
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
    bool closed = quote == '\0';
    while (!done()) {
      if (text_[at_] == '\\') {
        backslashes(quote, plain);
      } else if (rest().starts_with("${")) {
        flush();
        parts.push_back(interpolation());
      } else if (quote != '\0' && text_[at_] == quote) {
        ++at_;
        closed = true;
        break;
      } else {
        plain += text_[at_++];
      }
    }
    if (!closed) fail("a closing quote");
    flush();
    if (parts.size() == 1 && quote == '\0') return std::move(parts.front());
    return concat(std::move(parts));
  }

  void backslashes(char quote, std::string& plain) {
    std::size_t n = 0;
    while (at_ + n < text_.size() && text_[at_ + n] == '\\') ++n;
    at_ += n;
    const bool before_interpolation = rest().starts_with("${");
    const bool before_quote = quote != '\0' && !done() && text_[at_] == quote;
    if (before_interpolation || before_quote) {
      plain.append(n / 2, '\\');
      if (n % 2 == 0) return;
      plain += before_quote ? std::string(1, quote) : std::string("${");
      at_ += before_quote ? 1 : 2;
      return;
    }
    plain.append(n, '\\');
  }

  Expr interpolation() {
    if (++depth_ > kDeepestInterpolation) fail_deep();
    take("${");
    skip_spaces();
    std::vector<Expr> parts;
    while (take(".")) parts.push_back(literal("."));
    const bool relative = !parts.empty();
    bool name_possible = !relative && !rest().starts_with("[");
    bool expect_key = true;
    while (true) {
      if (expect_key) {
        const bool bracket = take("[");
        if (bracket) {
          name_possible = false;
          parts.push_back(literal("["));
        }
        parts.push_back(key());
        if (bracket) {
          if (!take("]")) fail("]");
          parts.push_back(literal("]"));
        }
      }
      if (take_spaced('}')) break;
      if (name_possible && take_spaced(':')) return call(std::move(parts));
      if (take(".")) {
        parts.push_back(literal("."));
        if (rest().starts_with("[")) fail("a key");
        expect_key = true;
      } else if (rest().starts_with("[")) {
        expect_key = true;
      } else {
        fail("}");
      }
    }
    --depth_;
    Expr expr;
    expr.kind = ExprKind::kReference;
    expr.children = std::move(parts);
    return expr;
  }

  /// A word or a nested interpolation.
  Expr key() {
    if (rest().starts_with("${")) return interpolation();
    const std::size_t begin = at_;
    while (!done() &&
           std::string_view("\\{}()[]:. \t'\"").find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    if (at_ == begin) fail("a key");
    return literal(std::string(text_.substr(begin, at_ - begin)));
  }

  Expr call(std::vector<Expr> name) {
    skip_spaces();
    Expr expr;
    expr.kind = ExprKind::kCall;
    expr.name_parts = name.size();
    expr.children = std::move(name);
    if (!take_spaced('}')) {
      for (Expr& argument : sequence('}')) expr.children.push_back(std::move(argument));
    }
    --depth_;
    return expr;
  }

  /// Elements between commas up to `close`; what is left out is an empty text.
  std::vector<Expr> sequence(char close) {
    std::vector<Expr> elements;
    bool after_comma = true;
    while (true) {
      if (take_spaced(close)) {
        if (after_comma) elements.push_back(literal(""));
        return elements;
      }
      if (take_spaced(',')) {
        skip_spaces();
        if (after_comma) elements.push_back(literal(""));
        after_comma = true;
        continue;
      }
      if (!after_comma) fail(std::string("',' or '") + close + "'");
      elements.push_back(element());
      after_comma = false;
    }
  }

  Expr element() {
    if (++depth_ > kDeepestInterpolation) fail_deep();
    Expr expr = element_inside();
    --depth_;
    return expr;
  }

  Expr element_inside() {
    const ValueToken token = next_value_token(rest(), Grammar::kOmegaConf);
    switch (token.type) {
      case TokenType::kBracketOpen: {
        at_ += token.text.size();
        Expr expr;
        expr.kind = ExprKind::kList;
        if (!take_spaced(']')) expr.children = sequence(']');
        return expr;
      }
      case TokenType::kBraceOpen:
        at_ += token.text.size();
        return map();
      case TokenType::kQuoteOpen:
        ++at_;
        return text(token.text.front());
      default:
        return primitive(true);
    }
  }

  Expr map() {
    Expr expr;
    expr.kind = ExprKind::kMap;
    if (take_spaced('}')) return expr;
    do {
      skip_spaces();
      const Expr key_expr = primitive(false);
      expr.keys.push_back(key_expr.literal);
      if (!take_spaced(':')) fail(":");
      skip_spaces();
      expr.children.push_back(element());
    } while (take_spaced(','));
    if (!take_spaced('}')) fail("}");
    return expr;
  }

  /// One token keeps its type, several are a text.
  Expr primitive(bool is_value) {
    std::vector<Expr> parts;
    ValueToken only;
    while (true) {
      const ValueToken token = next_value_token(rest(), Grammar::kOmegaConf);
      if (!is_primitive_part(token.type, is_value)) break;
      if (token.type == TokenType::kInterpolationOpen) {
        parts.push_back(interpolation());
        continue;
      }
      at_ += token.text.size();
      only = token;
      parts.push_back(literal(token_text(token)));
    }
    if (parts.empty()) fail("a value");
    if (parts.size() == 1) {
      if (!is_interpolation(parts.front())) {
        if (only.type == TokenType::kSpace) fail("more than spaces");
        parts.front().literal = typed_token(only);
      }
      return std::move(parts.front());
    }
    if (is_value) return concat(std::move(parts));
    std::string joined;
    for (const Expr& part : parts) joined += part.literal.text;
    return literal(std::move(joined));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expr parse_interpolated(std::string_view text) { return Parser(text).whole_text(); }

Expr parse_element(std::string_view text) { return Parser(text).whole_element(); }

}  // namespace ddp::train
