// Operators, elements and slices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/data/chat/template_builtins.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;

[[noreturn]] void refuse_operands(const std::string& sign, const Value& left, const Value& right) {
  refuse_value(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign,
                           left.type_name(), right.type_name()));
}

Value repeated(TemplateRun& run, const Value& whole, int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<int64_t>(count, 0));
  if (times > (std::size_t{1} << 30U)) refuse_value("a number is too large");
  run.spend(times * whole.weight());
  if (whole.is_text()) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += *whole.text();
    return text;
  }
  TemplateValues items;
  for (std::size_t i = 0; i < times; ++i)
    items.insert(items.end(), whole.list()->items.begin(), whole.list()->items.end());
  return Value::list(std::move(items), whole.list()->tuple);
}

Value of_floats(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (b == 0) refuse_value("division by zero");
  if (sign == "/") return a / b;
  const double rest = std::fmod(a, b);
  const double modulo = rest == 0 ? std::copysign(0.0, b) : (rest < 0) != (b < 0) ? rest + b : rest;
  if (sign == "%") return modulo;
  const double whole = std::floor((a - modulo) / b + 0.5);
  return whole == 0 ? std::copysign(0.0, a / b) : whole;
}

Value of_integers(const std::string& sign, int64_t a, int64_t b) {
  int64_t made = 0;
  bool too_large = false;
  if (sign == "+") too_large = __builtin_add_overflow(a, b, &made);
  if (sign == "-") too_large = __builtin_sub_overflow(a, b, &made);
  if (sign == "*") too_large = __builtin_mul_overflow(a, b, &made);
  if (sign == "//" || sign == "%") {
    if (b == 0) refuse_value("division by zero");
    if (b == -1) return of_integers("*", sign == "%" ? 0 : a, -1);
    int64_t rest = a % b;
    int64_t whole = a / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {  // Python's: of the divisor's sign
      rest += b;
      --whole;
    }
    made = sign == "%" ? rest : whole;
  }
  if (too_large) refuse_value("a number is too large");
  return made;
}

/// What + and * join and repeat.
bool is_list(const Value& value) { return value.list() != nullptr && value.list()->type.empty(); }

}  // namespace

Value element(TemplateRun& run, const Value& value, const Value& key) {
  if (value.dict() != nullptr && (key.is_text() || key.is_number() || key.is_none())) {
    if (const Value* found = value.dict()->find(key)) return *found;
  }
  if (key.is_text()) return attribute(run, value, *key.text());
  if (!key.is_integer() || (value.list() == nullptr && !value.is_text())) return {};
  if (value.list() != nullptr && !value.list()->has_elements()) return {};
  if (value.is_text()) run.spend(value.weight() * 8);
  const auto letters =
      value.is_text() ? characters(*value.text()) : std::vector<std::string_view>{};
  const auto size = value.is_text() ? std::ssize(letters) : std::ssize(value.list()->items);
  const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) return {};
  const auto at = static_cast<std::size_t>(index);
  return value.is_text() ? Value(letters[at]) : value.list()->items[at];
}

Value sliced(TemplateRun& run, const Value& whole, const Value& first, const Value& last,
             const Value& step) {
  if (whole.list() == nullptr && !whole.is_text()) {
    if (whole.is_undefined()) refuse_value("an undefined value has no elements");
    return {};
  }
  if (whole.list() != nullptr && !whole.list()->has_elements()) return {};
  run.spend(whole.is_text() ? whole.weight() * 16 : whole.list()->items.size() * 32);
  const auto letters =
      whole.is_text() ? characters(*whole.text()) : std::vector<std::string_view>{};
  const auto size = whole.is_text() ? std::ssize(letters) : std::ssize(whole.list()->items);
  const int64_t stride = integer_of(step, 1);
  if (stride == 0) refuse_value("slice step cannot be zero");
  const int64_t lowest = stride > 0 ? 0 : -1;
  const int64_t highest = stride > 0 ? size : size - 1;
  const auto limit = [&](const Value& given, int64_t otherwise) {
    if (given.is_none()) return otherwise;
    const int64_t index = integer_of(given, 0);
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  const int64_t end = limit(last, stride > 0 ? size : -1);
  TemplateValues part;
  std::string text;
  for (int64_t at = limit(first, stride > 0 ? 0 : size - 1); stride > 0 ? at < end : at > end;) {
    const auto index = static_cast<std::size_t>(at);
    if (whole.is_text())
      text += letters[index];
    else
      part.push_back(whole.list()->items[index]);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (whole.is_text()) return text;
  if (!is_list(whole)) return Value::iterable(whole.list()->type, std::move(part));
  return Value::list(std::move(part), whole.list()->tuple);
}

Value binary(TemplateRun& run, const std::string& sign, const Value& left, const Value& right) {
  if (sign == "~") {
    run.spend(left.weight() + right.weight());
    return printed(left) + printed(right);
  }
  if (sign == "**") refuse_value("the operator ** is not supported");
  if (left.is_number() && right.is_number()) {
    const bool fractions = sign == "/" || left.is_float() || right.is_float();
    return fractions ? of_floats(sign, left.number(), right.number())
                     : of_integers(sign, left.integer(), right.integer());
  }
  if (sign == "+" && left.is_text() && right.is_text()) {
    run.spend(left.weight() + right.weight());
    return *left.text() + *right.text();
  }
  if (sign == "+" && is_list(left) && is_list(right) && left.list()->tuple == right.list()->tuple) {
    run.spend(left.weight() + right.weight());
    TemplateValues both = left.list()->items;
    both.insert(both.end(), right.list()->items.begin(), right.list()->items.end());
    return Value::list(std::move(both), left.list()->tuple);
  }
  if (sign == "*" && right.is_integer() && (left.is_text() || is_list(left)))
    return repeated(run, left, right.integer());
  if (sign == "*" && left.is_integer() && (right.is_text() || is_list(right)))
    return repeated(run, right, left.integer());
  if (sign == "%" && left.is_text()) refuse_value("formatting by % is not supported");
  refuse_operands(sign, left, right);
}

}  // namespace ddp::train
