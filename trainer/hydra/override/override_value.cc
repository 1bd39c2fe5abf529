#include "trainer/hydra/override/override_value.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "trainer/hydra/interpolation/value_parser.h"
#include "trainer/hydra/yaml/python_number.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostValues = 100'000;

/// To 15 digits: 0.1 three times is 0.3, as in Hydra, which adds decimal fractions.
double rounded(long double value) {
  return std::strtod(fmt::format("{:.15g}", value).c_str(), nullptr);
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&name](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

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

Sweep range_sweep(const Node& start, const Node& stop, const Node& step) {
  const auto is_int = [](const Node& node) { return node.kind == Kind::kInt; };
  const bool whole = is_int(start) && is_int(stop) && is_int(step);
  const long double pace = exact_number(step);
  if (pace == 0 || std::isnan(pace)) throw std::invalid_argument("range(): the step must not be 0");
  Sweep sweep{SweepKind::kRange, {}, {}, {}};
  while (true) {
    const long double at =
        exact_number(start) + pace * static_cast<long double>(sweep.items.size());
    if (!(pace > 0 ? at < exact_number(stop) : at > exact_number(stop))) return sweep;
    if (sweep.items.size() >= kMostValues)
      throw std::invalid_argument("range() has too many values; give fewer");
    const Node value = whole ? Node::of(static_cast<int64_t>(at)) : Node::of(rounded(at));
    sweep.items.push_back({value, python_str(value)});
  }
}

std::vector<std::string> sweep_values(const Sweep& sweep, const std::vector<std::string>& options) {
  std::vector<std::string> values;
  for (const SweepItem& item : sweep.items) values.push_back(item.text);
  for (const std::string& name : options) {
    if (matches_any(sweep.include, name) && !matches_any(sweep.exclude, name))
      values.push_back(name);
  }
  return values;
}

std::string override_text(const Node& value) {
  if (value.kind == Kind::kNull) return "null";
  std::vector<std::string> parts;
  if (value.kind == Kind::kList) {
    for (const Node& item : value.items) parts.push_back(override_text(item));
    return fmt::format("[{}]", fmt::join(parts, ","));
  }
  if (value.kind == Kind::kMap) {
    for (const Entry& entry : value.entries)
      parts.push_back(override_text(entry.key) + ":" + override_text(entry.value));
    return fmt::format("{{{}}}", fmt::join(parts, ","));
  }
  if (value.kind != Kind::kString) return python_str(value);
  std::string out;
  for (const char c : value.text) {
    if (std::string_view("\\()[]{}:=, \t").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

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
