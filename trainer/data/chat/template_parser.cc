// Statements of chat templates.
#include <initializer_list>
#include <utility>

#include "trainer/data/chat/template_expressions.h"

namespace ddp::train {
namespace {

class TemplateParser : private TemplateExpressionParser {
 public:
  explicit TemplateParser(std::vector<TemplateToken> tokens)
      : TemplateExpressionParser(std::move(tokens)) {}

  /// Up to a statement that begins with one of `ends`, whose name is `end_` then.
  NodePtr block(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    NodePtr body = make(NodeKind::kBody);
    for (;;) {
      const TemplateToken token = next();
      if (token.kind == Kind::kData) {
        add(body, make(NodeKind::kText, token.text));
      } else if (token.kind == Kind::kOutput) {
        add(body, make(NodeKind::kOutput, {}, tuple()));
        expect_end();
      } else if (token.kind == Kind::kStatement) {
        end_ = expect_name();
        if (std::find(ends.begin(), ends.end(), end_) != ends.end()) return body;
        add(body, statement(end_));
      } else {
        if (ends.size() > 0)
          refuse_template(token.line, fmt::format("'{}' is missing", *ends.begin()));
        return body;
      }
    }
  }

 private:
  // Statements.
  NodePtr statement(const std::string& keyword) {
    if (keyword == "if") return condition();
    if (keyword == "for") return loop();
    if (keyword == "set") return assignment();
    if (keyword == "macro") return macro();
    if (keyword == "call") return call_block();
    if (keyword == "filter") return filter_block();
    if (keyword == "with") return with();
    if (keyword == "generation") {
      expect_end();
      return make(NodeKind::kGeneration, {}, captured("endgeneration"));
    }
    if (keyword == "break" || keyword == "continue") {
      expect_end();
      if (loops_ == 0) {
        refuse(
            fmt::format("'{}' outside a loop, or in a block within it such as 'set' or "
                        "'generation', which it cannot leave",
                        keyword));
      }
      return make(keyword == "break" ? NodeKind::kBreak : NodeKind::kContinue);
    }
    if (keyword != "include" && keyword != "import" && keyword != "from" && keyword != "extends")
      refuse(fmt::format("'{}' is not supported", keyword));
    NodePtr node = make(NodeKind::kRefused, keyword);
    while (peek().kind != Kind::kEnd && peek().kind != Kind::kEndOfFile) next();
    expect_end();
    return node;
  }

  /// The body of a block up to its end tag, that included.
  NodePtr closed(std::string_view end) {
    NodePtr body = block({end});
    expect_end();
    return body;
  }
  /// The same of a block whose text is a value: no loop around it is left or continued from within.
  NodePtr captured(std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    NodePtr body = closed(end);
    loops_ = outer;
    return body;
  }

  NodePtr condition() {
    NodePtr node = make(NodeKind::kIf);
    for (end_ = "if"; end_ != "endif";) {
      const bool last = end_ == "else";
      if (!last) add(node, expression());
      expect_end();
      add(node, last ? block({"endif"}) : block({"endif", "elif", "else"}));
    }
    expect_end();
    return node;
  }

  NodePtr loop() {
    NodePtr node = make(NodeKind::kFor);
    add(node, target());
    if (!take_name("in")) refuse("'in' is expected");
    add(node, tuple(/*with_choice=*/false));
    add(node, take_name("if") ? expression() : nullptr);
    if (take_name("recursive")) node->text = "recursive";
    expect_end();
    ++loops_;
    add(node, block({"endfor", "else"}));
    --loops_;
    const bool otherwise = end_ == "else";
    expect_end();
    add(node, otherwise ? closed("endfor") : nullptr);
    return node;
  }

  /// A name, a member of a namespace, or several.
  NodePtr target() {
    NodePtr first = single_target();
    if (!is_sign(",")) return first;
    NodePtr all = make(NodeKind::kTuple, {}, std::move(first));
    while (take_sign(",")) {
      if (!is_name("in") && !is_sign("=") && !is_sign(")")) add(all, single_target());
    }
    return all;
  }
  NodePtr single_target() {
    const Deeper deeper(*this);
    if (take_sign("(")) {
      NodePtr inner = target();
      expect_sign(")");
      return inner;
    }
    NodePtr name = make(NodeKind::kName, expect_name());
    if (!take_sign(".")) return name;
    return make(NodeKind::kAttribute, expect_name(), std::move(name));
  }

  NodePtr assignment() {
    NodePtr to = target();
    if (take_sign("=")) {
      NodePtr node = make(NodeKind::kSet, {}, std::move(to), tuple());
      expect_end();
      return node;
    }
    NodePtr changed = with_filters(make(NodeKind::kName, kBlockText));
    expect_end();
    return make(NodeKind::kSetBlock, {}, std::move(to), captured("endset"), std::move(changed));
  }

  NodePtr filter_block() {
    NodePtr changed = filter(make(NodeKind::kName, kBlockText));
    changed = with_filters(std::move(changed));
    expect_end();
    return make(NodeKind::kFilterBlock, {}, captured("endfilter"), std::move(changed));
  }

  NodePtr with() {
    std::vector<NodePtr> pairs;
    while (peek().kind != Kind::kEnd) {
      if (!pairs.empty()) expect_sign(",");
      pairs.push_back(target());
      expect_sign("=");
      pairs.push_back(expression());
    }
    expect_end();
    NodePtr node = make(NodeKind::kWith, {}, closed("endwith"));
    for (NodePtr& each : pairs) add(node, std::move(each));
    return node;
  }

  /// From the parameters on.
  NodePtr macro_of(std::string name, std::string_view end) {
    NodePtr node = make(NodeKind::kMacro, std::move(name));
    std::vector<NodePtr> defaults;
    if (take_sign("(")) {
      while (!take_sign(")")) {
        node->names.push_back(expect_name());
        if (take_sign("="))
          defaults.push_back(expression());
        else if (!defaults.empty())
          refuse("a parameter without a default follows one with a default");
        if (!is_sign(")")) expect_sign(",");
      }
    }
    NodePtr call = end == "endcall" ? expression() : nullptr;
    expect_end();
    add(node, captured(end));
    for (NodePtr& each : defaults) add(node, std::move(each));
    if (end == "endmacro") return node;
    if (call->kind != NodeKind::kCall) refuse("a call is expected after 'call'");
    return make(NodeKind::kCallBlock, {}, std::move(call), std::move(node));
  }
  NodePtr macro() { return macro_of(expect_name(), "endmacro"); }
  NodePtr call_block() { return macro_of("caller", "endcall"); }

  std::string end_;
  int loops_ = 0;
};

}  // namespace

TemplateNodePtr parse_template(std::vector<TemplateToken> tokens) {
  return TemplateParser(std::move(tokens)).block({});
}

}  // namespace ddp::train
