#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "trainer/data/chat/template_program.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Kind = TemplateToken::Kind;
using Value = TemplateValue;
using Values = std::vector<Value>;
using Expression = TemplateExpression;

struct Arguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;

  Values values(TemplateRun& run) const {
    Values result;
    for (const Expression& each : positional) result.push_back(each(run));
    return result;
  }
};

/// What `work` throws names the line.
template <typename Work>
Value at_line(int line, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const std::string what = error.what();
    if (what.starts_with("line ") || what.starts_with("the chat template")) throw;
    refuse_template(line, what);
  }
}

/// Precedence climbs from the ternary to operands.
class ExpressionParser {
 public:
  explicit ExpressionParser(TemplateCursor& cursor) : cursor_(cursor) {}

  Expression disjunction_only() { return disjunction(); }

  Expression ternary() {
    if (++depth_ > kDeepest) cursor_.refuse("is nested too deeply");
    Expression value = disjunction();
    while (cursor_.take_name("if")) {
      const Expression condition = disjunction();
      const Expression otherwise =
          cursor_.take_name("else") ? ternary() : [](TemplateRun&) { return undefined_value(); };
      value = [=, then = std::move(value)](TemplateRun& run) {
        return is_true(condition(run)) ? then(run) : otherwise(run);
      };
    }
    --depth_;
    return value;
  }

 private:
  static constexpr int kDeepest = 60;

  Expression disjunction() {
    Expression left = conjunction();
    while (cursor_.take_name("or")) {
      left = [a = std::move(left), b = conjunction()](TemplateRun& run) {
        Value first = a(run);
        return is_true(first) ? first : b(run);
      };
    }
    return left;
  }

  Expression conjunction() {
    Expression left = negation();
    while (cursor_.take_name("and")) {
      left = [a = std::move(left), b = negation()](TemplateRun& run) {
        Value first = a(run);
        return is_true(first) ? b(run) : first;
      };
    }
    return left;
  }

  Expression negation() {
    if (!cursor_.take_name("not")) return comparison();
    if (++depth_ > kDeepest) cursor_.refuse("is nested too deeply");
    Expression inner = negation();
    --depth_;
    return [inner = std::move(inner)](TemplateRun& run) { return Value(!is_true(inner(run))); };
  }

  std::string comparison_sign() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (cursor_.take_sign(sign)) return sign;
    }
    if (cursor_.take_name("in")) return "in";
    if (!cursor_.take_name("not")) return "";
    if (!cursor_.take_name("in")) cursor_.refuse("'in' is expected after 'not'");
    return "not in";
  }

  /// a < b < c is a < b and b < c.
  Expression comparison() {
    Expression left = sum();
    Expression chain;
    for (std::string sign = comparison_sign(); !sign.empty(); sign = comparison_sign()) {
      const bool negated = sign == "not in";
      Expression right = sum();
      Expression one = [a = left, b = right, negated, line = cursor_.peek().line,
                        s = negated ? "in" : sign](TemplateRun& run) {
        return Value(is_true(at_line(line, [&] { return binary(s, a(run), b(run)); })) != negated);
      };
      chain = !chain ? one : [a = chain, one](TemplateRun& run) {
        return is_true(a(run)) ? one(run) : Value(false);
      };
      left = std::move(right);
    }
    return chain ? chain : left;
  }

  template <typename Next>
  Expression left_to_right(std::initializer_list<const char*> signs, const Next& next) {
    Expression left = next();
    for (bool found = true; found;) {
      found = false;
      for (const char* sign : signs) {
        if (found || !cursor_.take_sign(sign)) continue;
        found = true;
        left = [a = std::move(left), b = next(), s = std::string(sign),
                line = cursor_.peek().line](TemplateRun& run) {
          return at_line(line, [&] { return binary(s, a(run), b(run)); });
        };
      }
    }
    return left;
  }

  Expression sum() {
    return left_to_right({"+", "-"}, [this] { return concatenation(); });
  }
  Expression concatenation() {
    return left_to_right({"~"}, [this] { return product(); });
  }
  Expression product() {
    return left_to_right({"*", "//", "%", "/"}, [this] { return signed_operand(); });
  }

  Expression signed_operand() {
    if (!cursor_.take_sign("-")) return with_filters(operand_with_parts());
    Expression inner = operand_with_parts();
    return with_filters([inner = std::move(inner), line = cursor_.peek().line](TemplateRun& run) {
      return at_line(line, [&] { return binary("-", Value(0), inner(run)); });
    });
  }

  Expression with_filters(Expression value) {
    for (;;) {
      const int line = cursor_.peek().line;
      if (cursor_.take_sign("|")) {
        const std::string name = cursor_.expect_name();
        const Arguments arguments = cursor_.is_sign("(") ? call_arguments() : Arguments{};
        if (!arguments.named.empty())
          cursor_.refuse("named arguments of filters are not supported");
        value = [inner = std::move(value), name, arguments, line](TemplateRun& run) {
          return at_line(line, [&] { return filtered(name, inner(run), arguments.values(run)); });
        };
      } else if (cursor_.take_name("is")) {
        value = test_of(std::move(value), line);
      } else {
        return value;
      }
    }
  }

  Expression test_of(Expression value, int line) {
    const bool negated = cursor_.take_name("not");
    const TemplateToken name = cursor_.next();
    if (name.kind != Kind::kName) cursor_.refuse("a test is expected after 'is'");
    const Arguments arguments = cursor_.is_sign("(") ? call_arguments() : Arguments{};
    return [=, inner = std::move(value), test = name.text](TemplateRun& run) {
      return at_line(line, [&] {
        return Value(passes_test(test, inner(run), arguments.values(run)) != negated);
      });
    };
  }

  Expression operand_with_parts() {
    Expression value = operand();
    for (;;) {
      const int line = cursor_.peek().line;
      if (cursor_.take_sign(".")) {
        value = member_of(std::move(value), line);
      } else if (cursor_.take_sign("[")) {
        value = subscript_of(std::move(value), line);
      } else {
        return value;
      }
    }
  }

  Expression member_of(Expression value, int line) {
    const std::string name = cursor_.expect_name();
    if (!cursor_.is_sign("(")) {
      return [inner = std::move(value), name, line](TemplateRun& run) {
        return at_line(line, [&] { return element(inner(run), name); });
      };
    }
    const Arguments arguments = call_arguments();
    return [inner = std::move(value), name, arguments, line](TemplateRun& run) {
      return at_line(line, [&] { return called_method(name, inner(run), arguments.values(run)); });
    };
  }

  Expression subscript_of(Expression value, int line) {
    const Expression none = [](TemplateRun&) { return Value(nullptr); };
    Expression bounds[3] = {none, none, none};
    int colons = 0;
    while (!cursor_.take_sign("]")) {
      if (cursor_.take_sign(":")) {
        if (++colons > 2) cursor_.refuse("a slice has two colons at most");
      } else {
        bounds[colons] = ternary();
        if (!cursor_.is_sign("]") && !cursor_.is_sign(":")) cursor_.refuse("']' is expected");
      }
    }
    return [inner = std::move(value), colons, a = bounds[0], b = bounds[1], c = bounds[2],
            line](TemplateRun& run) {
      return at_line(line, [&] {
        return colons == 0 ? element(inner(run), a(run))
                           : slice(inner(run), a(run), b(run), c(run));
      });
    };
  }

  Expression operand() {
    const TemplateToken token = cursor_.next();
    if (token.kind == Kind::kNumber) return number(token);
    if (token.kind == Kind::kName) return name(token);
    if (token.kind == Kind::kString) {
      std::string text = token.text;  // adjacent strings are one
      while (cursor_.peek().kind == Kind::kString) text += cursor_.next().text;
      return [text](TemplateRun&) { return Value(text); };
    }
    if (token.kind != Kind::kSign) refuse_template(token.line, "a value is expected");
    if (token.text == "(") {
      Expression inner = ternary();
      if (cursor_.is_sign(",")) cursor_.refuse("tuples are not supported");
      cursor_.expect_sign(")");
      return inner;
    }
    if (token.text == "[") return list();
    if (token.text == "{") return mapping();
    refuse_template(token.line, fmt::format("a value is expected before '{}'", token.text));
  }

  Expression number(const TemplateToken& token) {
    int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto read = std::from_chars(token.text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end)
      refuse_template(token.line, "fractions are not supported");
    return [value](TemplateRun&) { return Value(value); };
  }

  Expression name(const TemplateToken& token) {
    const std::string& text = token.text;
    if (text == "true" || text == "True") return [](TemplateRun&) { return Value(true); };
    if (text == "false" || text == "False") return [](TemplateRun&) { return Value(false); };
    if (text == "none" || text == "None") return [](TemplateRun&) { return Value(nullptr); };
    if (cursor_.is_sign("(")) return call(token);
    return [text](TemplateRun& run) {
      const Value* found = run.find(text);
      return found == nullptr ? undefined_value() : *found;
    };
  }

  Expression call(const TemplateToken& function) {
    const Arguments arguments = call_arguments();
    if (function.text == "raise_exception") {
      return [arguments](TemplateRun& run) -> Value {
        const Values given = arguments.values(run);
        throw UserError("the chat template refuses it: " +
                        (given.empty() ? "" : printed(given[0])));
      };
    }
    if (function.text == "namespace" || function.text == "dict") {
      return [arguments](TemplateRun& run) {
        Value made = Value::object();
        for (const auto& [key, value] : arguments.named) made[key] = value(run);
        return made;
      };
    }
    refuse_template(function.line, fmt::format("{}() is not supported", function.text));
  }

  Arguments call_arguments() {
    Arguments arguments;
    cursor_.expect_sign("(");
    while (!cursor_.take_sign(")")) {
      if (cursor_.peek().kind == Kind::kName && cursor_.is_sign_after("=")) {
        const std::string key = cursor_.expect_name();
        cursor_.expect_sign("=");
        arguments.named.emplace_back(key, ternary());
      } else {
        arguments.positional.push_back(ternary());
      }
      if (!cursor_.is_sign(")")) cursor_.expect_sign(",");
    }
    return arguments;
  }

  Expression list() {
    std::vector<Expression> items;
    while (!cursor_.take_sign("]")) {
      items.push_back(ternary());
      if (!cursor_.is_sign("]")) cursor_.expect_sign(",");
    }
    return [items](TemplateRun& run) {
      Value made = Value::array();
      for (const Expression& item : items) made.push_back(item(run));
      return made;
    };
  }

  Expression mapping() {
    std::vector<std::pair<Expression, Expression>> items;
    while (!cursor_.take_sign("}")) {
      Expression key = ternary();
      cursor_.expect_sign(":");
      items.emplace_back(std::move(key), ternary());
      if (!cursor_.is_sign("}")) cursor_.expect_sign(",");
    }
    return [items](TemplateRun& run) {
      Value made = Value::object();
      for (const auto& [key, value] : items) made[printed(key(run))] = value(run);
      return made;
    };
  }

  TemplateCursor& cursor_;
  int depth_ = 0;
};

}  // namespace

TemplateExpression parse_template_expression(TemplateCursor& cursor) {
  return ExpressionParser(cursor).ternary();
}

TemplateExpression parse_template_expression_without_if(TemplateCursor& cursor) {
  return ExpressionParser(cursor).disjunction_only();
}

}  // namespace ddp::train
