#include "trainer/hydra/override/override_value.h"

#include <stdexcept>

#include "trainer/hydra/interpolation/value_parser.h"

namespace ddp::train {
namespace {

OverrideValue evaluate(const Expr& expr);

OverrideValue evaluate_function(const Expr& expr) {
  std::vector<FunctionArgument> arguments;
  for (std::size_t i = 0; i < expr.children.size(); ++i)
    arguments.push_back({expr.keys[i].text, evaluate(expr.children[i])});
  return call_function(expr.literal.text, std::move(arguments));
}

Node evaluate_part(const Expr& expr) {
  OverrideValue value = evaluate(expr);
  if (value.sweep)
    throw std::invalid_argument("a sweep cannot be part of a list or map; quote it if it is text");
  return std::move(value.item.value);
}

OverrideValue evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::kFunction) return evaluate_function(expr);
  Node node = expr.literal;
  if (expr.kind == ExprKind::kList) {
    node = Node::list();
    for (const Expr& item : expr.children) node.items.push_back(evaluate_part(item));
  } else if (expr.kind == ExprKind::kMap) {
    node = Node::map();
    for (std::size_t i = 0; i < expr.keys.size(); ++i)
      set_entry(node, expr.keys[i], evaluate_part(expr.children[i]));
  }
  return {{std::move(node), expr.source}, std::nullopt};
}

}  // namespace

Sweep choice_of(const std::vector<OverrideValue>& values) {
  Sweep sweep;
  for (const OverrideValue& value : values) {
    if (value.sweep)
      throw std::invalid_argument("a sweep cannot contain another sweep; write the values out");
    sweep.items.push_back(value.item);
  }
  return sweep;
}

OverrideValue parse_override_value(std::string_view text, const Place& place) {
  try {
    std::vector<OverrideValue> values;
    for (const Expr& expr : parse_override_values(text)) values.push_back(evaluate(expr));
    return values.size() == 1 ? values.front() : OverrideValue{{}, choice_of(values)};
  } catch (const std::invalid_argument& e) {
    fail_with(place, e.what());
  }
}

}  // namespace ddp::train
