// A chat template that was parsed: expressions and statements as functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/data/chat/chat_template.h"
#include "trainer/data/chat/template_tokens.h"
#include "trainer/data/chat/template_values.h"

namespace ddp::train {

/// The variables and the output of one run.
class TemplateRun {
 public:
  using Variables = std::map<std::string, TemplateValue>;
  explicit TemplateRun(Variables globals) : scopes_{std::move(globals)} {}

  /// Null: undefined.
  TemplateValue* find(const std::string& name);
  void set(const std::string& name, TemplateValue value);
  void push() { scopes_.emplace_back(); }
  void pop() { scopes_.pop_back(); }
  /// Throws UserError when the output or the number of steps is beyond any chat's.
  void write(const std::string& text);
  void count_step();

  std::string output;
  std::vector<TextSpan> generated;  ///< Parts of the output.

 private:
  std::vector<Variables> scopes_;  ///< The innermost last.
  int64_t steps_ = 0;
};

using TemplateExpression = std::function<TemplateValue(TemplateRun&)>;
using TemplateStatement = std::function<void(TemplateRun&)>;

/// A parser's position in the tokens.
class TemplateCursor {
 public:
  explicit TemplateCursor(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& peek() const { return tokens_[at_]; }
  TemplateToken next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is(TemplateToken::Kind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool is_sign(std::string_view sign) const { return is(TemplateToken::Kind::kSign, sign); }
  bool is_name(std::string_view name) const { return is(TemplateToken::Kind::kName, name); }
  /// Whether the token after the current one is `sign`.
  bool is_sign_after(std::string_view sign) const {
    return at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TemplateToken::Kind::kSign &&
           tokens_[at_ + 1].text == sign;
  }
  bool take_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
  void expect_sign(std::string_view sign);
  std::string expect_name();
  void expect_end();
  [[noreturn]] void refuse(const std::string& what) const { refuse_template(peek().line, what); }

 private:
  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
};

/// An expression, `a if b else c` included.
TemplateExpression parse_template_expression(TemplateCursor& cursor);
/// The same without that: a loop's condition may follow.
TemplateExpression parse_template_expression_without_if(TemplateCursor& cursor);
/// A whole template.
TemplateStatement parse_template(TemplateCursor& cursor);

}  // namespace ddp::train
