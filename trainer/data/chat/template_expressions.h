// Parses the expressions of chat templates; the parser of statements builds on it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "trainer/data/chat/template_node.h"

namespace ddp::train {

class TemplateExpressionParser {
 protected:
  using Kind = TemplateToken::Kind;
  using Node = TemplateNode;
  using NodePtr = TemplateNodePtr;
  using NodeKind = TemplateNode::Kind;

  // Parsing, evaluation and destruction of a template recurse.
  static constexpr int kDeepest = 250;

  explicit TemplateExpressionParser(std::vector<TemplateToken> tokens)
      : tokens_(std::move(tokens)) {}

  struct Deeper {
    explicit Deeper(TemplateExpressionParser& parser) : parser_(parser) {
      if (++parser.depth_ > kDeepest / 2) parser.refuse("is nested too deeply");
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    TemplateExpressionParser& parser_;
  };

  // Tokens.
  const TemplateToken& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  TemplateToken next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is_sign(std::string_view sign, std::size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kSign && peek(ahead).text == sign;
  }
  bool is_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kName && peek(ahead).text == name;
  }
  bool take_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
  [[noreturn]] void refuse(const std::string& what) const { refuse_template(peek().line, what); }
  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) refuse(fmt::format("'{}' is expected", sign));
  }
  std::string expect_name() {
    if (peek().kind != Kind::kName) refuse("a name is expected");
    return next().text;
  }
  void expect_end() {
    if (peek().kind != Kind::kEnd) refuse(fmt::format("unexpected '{}'", peek().text));
    next();
  }

  // Nodes.
  template <typename... Children>
  NodePtr make(NodeKind kind, std::string text = {}, Children... children) {
    auto node = std::make_unique<Node>(Node{kind, peek().line, std::move(text)});
    (add(node, std::move(children)), ...);
    return node;
  }
  void add(NodePtr& node, NodePtr child) {
    if (child) node->depth = std::max(node->depth, child->depth + 1);
    node->children.push_back(std::move(child));
    if (node->depth > kDeepest) refuse("an expression is too long or nested too deeply");
  }
  NodePtr constant(TemplateValue value) {
    NodePtr node = make(NodeKind::kConstant);
    node->value = std::move(value);
    return node;
  }

  // Expressions, by precedence.
  NodePtr expression(bool with_choice = true) {
    const Deeper deeper(*this);
    NodePtr value = disjunction();
    while (with_choice && take_name("if")) {
      NodePtr condition = disjunction();
      NodePtr otherwise = take_name("else") ? expression() : nullptr;
      value =
          make(NodeKind::kChoice, {}, std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  /// Values with commas between them are a tuple.
  NodePtr tuple(bool with_choice = true) {
    NodePtr first = expression(with_choice);
    if (!is_sign(",")) return first;
    NodePtr all = make(NodeKind::kTuple, {}, std::move(first));
    while (take_sign(",")) {
      if (peek().kind == Kind::kEnd || is_sign(")")) break;
      add(all, expression(with_choice));
    }
    return all;
  }

  NodePtr disjunction() {
    NodePtr left = conjunction();
    while (take_name("or")) left = make(NodeKind::kOr, {}, std::move(left), conjunction());
    return left;
  }
  NodePtr conjunction() {
    NodePtr left = negation();
    while (take_name("and")) left = make(NodeKind::kAnd, {}, std::move(left), negation());
    return left;
  }
  NodePtr negation() {
    if (!take_name("not")) return comparison();
    const Deeper deeper(*this);
    return make(NodeKind::kNot, {}, negation());
  }

  std::string comparison_sign() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take_sign(sign)) return sign;
    }
    if (take_name("in")) return "in";
    if (!is_name("not") || !is_name("in", 1)) return "";
    next();
    next();
    return "not in";
  }
  NodePtr comparison() {
    NodePtr left = binary(0);
    std::string sign = comparison_sign();
    if (sign.empty()) return left;
    NodePtr node = make(NodeKind::kCompare, {}, std::move(left));
    for (; !sign.empty(); sign = comparison_sign()) {
      node->names.push_back(sign);
      add(node, binary(0));
    }
    return node;
  }

  NodePtr binary(std::size_t level) {
    static constexpr std::array<std::array<const char*, 4>, 4> kSigns = {
        {{"+", "-", "", ""}, {"~", "", "", ""}, {"*", "/", "//", "%"}, {"**", "", "", ""}}};
    if (level == kSigns.size()) return unary();
    NodePtr left = binary(level + 1);
    for (;;) {
      const auto& signs = kSigns[level];
      const auto found = std::find_if(signs.begin(), signs.end(),
                                      [this](const char* sign) { return is_sign(sign); });
      if (found == signs.end()) return left;
      next();
      left = make(NodeKind::kBinary, *found, std::move(left), binary(level + 1));
    }
  }

  NodePtr unary(bool filters = true) {
    const Deeper deeper(*this);
    NodePtr value;
    if (take_sign("-"))
      value = make(NodeKind::kNegative, {}, unary(false));
    else if (take_sign("+"))
      value = make(NodeKind::kPositive, {}, unary(false));
    else
      value = operand();
    value = with_parts(std::move(value));
    return filters ? with_filters(std::move(value)) : std::move(value);
  }

  NodePtr with_filters(NodePtr value) {
    for (;;) {
      if (take_sign("|")) {
        value = filter(std::move(value));
      } else if (take_name("is")) {
        value = test(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }
  NodePtr filter(NodePtr value) {
    NodePtr node = make(NodeKind::kFilter, expect_name(), std::move(value));
    if (is_sign("(")) arguments(node);
    return node;
  }

  NodePtr test(NodePtr value) {
    const bool negated = take_name("not");
    NodePtr node = make(NodeKind::kTest, expect_name(), std::move(value));
    const Kind kind = peek().kind;
    const bool keyword =
        is_name("else") || is_name("or") || is_name("and") || is_name("if") || is_name("is");
    if (is_sign("(")) {
      arguments(node);
    } else if (kind == Kind::kString || kind == Kind::kNumber || is_sign("[") || is_sign("{") ||
               (kind == Kind::kName && !keyword)) {
      add(node, with_parts(operand()));
    }
    return negated ? make(NodeKind::kNot, {}, std::move(node)) : std::move(node);
  }

  NodePtr call(NodePtr function) {
    NodePtr node = make(NodeKind::kCall, {}, std::move(function));
    arguments(node);
    return node;
  }
  void arguments(NodePtr& node) {
    expect_sign("(");
    while (!take_sign(")")) {
      if (is_sign("**")) refuse("arguments with ** are not supported");
      const bool spread = take_sign("*");
      const bool named = peek().kind == Kind::kName && is_sign("=", 1);
      if (named) {
        node->names.push_back(next().text);
        next();
      } else if (!node->names.empty()) {
        refuse("a positional argument follows a named one");
      }
      add(node, spread ? make(NodeKind::kSpread, {}, expression()) : expression());
      if (!is_sign(")")) expect_sign(",");
    }
  }

  NodePtr with_parts(NodePtr value) {
    for (;;) {
      if (take_sign(".")) {
        if (peek().kind == Kind::kNumber) {
          NodePtr key = operand();
          value = make(NodeKind::kItem, {}, std::move(value), std::move(key));
        } else {
          value = make(NodeKind::kAttribute, expect_name(), std::move(value));
        }
      } else if (take_sign("[")) {
        value = subscript(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  NodePtr subscript(NodePtr value) {
    std::array<NodePtr, 3> bounds;
    std::size_t colons = 0;
    while (!take_sign("]")) {
      if (take_sign(":")) {
        if (++colons > 2) refuse("a slice has two colons at most");
      } else {
        bounds[colons] = expression();
        if (!is_sign("]") && !is_sign(":")) refuse("']' is expected");
      }
    }
    if (colons == 0) {
      if (!bounds[0]) refuse("a value is expected before ']'");
      return make(NodeKind::kItem, {}, std::move(value), std::move(bounds[0]));
    }
    return make(NodeKind::kSlice, {}, std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                std::move(bounds[2]));
  }

  NodePtr operand() {
    const TemplateToken token = next();
    if (token.kind == Kind::kNumber) return number(token);
    if (token.kind == Kind::kName) return name(token.text);
    if (token.kind == Kind::kString) {
      std::string text = token.text;  // adjacent strings are one
      while (peek().kind == Kind::kString) text += next().text;
      return constant(text);
    }
    if (token.kind != Kind::kSign) refuse_template(token.line, "a value is expected");
    if (token.text == "(") {
      if (take_sign(")")) return make(NodeKind::kTuple);
      NodePtr inner = tuple();
      expect_sign(")");
      return inner;
    }
    if (token.text == "[") return sequence(NodeKind::kList, "]");
    if (token.text == "{") return sequence(NodeKind::kDict, "}");
    refuse_template(token.line, fmt::format("a value is expected before '{}'", token.text));
  }

  NodePtr sequence(NodeKind kind, std::string_view close) {
    NodePtr node = make(kind);
    while (!take_sign(close)) {
      add(node, expression());
      if (kind == NodeKind::kDict) {
        expect_sign(":");
        add(node, expression());
      }
      if (!is_sign(close)) expect_sign(",");
    }
    return node;
  }

  NodePtr number(const TemplateToken& token) {
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    int64_t whole = 0;
    if (const auto read = std::from_chars(begin, end, whole);
        read.ptr == end && read.ec == std::errc())
      return constant(whole);
    double fraction = 0;
    const bool is_fraction = token.text.find_first_of(".eE") != std::string::npos;
    if (const auto read = std::from_chars(begin, end, fraction);
        !is_fraction || read.ptr != end || read.ec != std::errc())
      refuse_template(token.line, fmt::format("the number '{:.40}' is not supported", token.text));
    return constant(fraction);
  }

  NodePtr name(const std::string& text) {
    if (text == "true" || text == "True") return constant(true);
    if (text == "false" || text == "False") return constant(false);
    if (text == "none" || text == "None") return constant(nullptr);
    return make(NodeKind::kName, text);
  }

 private:
  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace ddp::train
