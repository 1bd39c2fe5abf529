#include "trainer/config/override/sweep.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "trainer/config/yaml/python_number.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostValues = 100'000;

void add_value(std::vector<std::string>& values, std::string value) {
  if (values.size() >= kMostValues)
    throw std::invalid_argument("range() has too many values; give fewer");
  values.push_back(std::move(value));
}

std::vector<std::string> whole_values(int64_t at, int64_t stop, int64_t step) {
  std::vector<std::string> values;
  while (step > 0 ? at < stop : at > stop) {
    add_value(values, std::to_string(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return values;
}

/// Steps are counted in integers, so that 0.1 ten times is 1 and not a little less. Hydra adds
/// decimal fractions exactly; long double holds the sum of a few thousand as well.
std::vector<std::string> range_values(const Sweep& sweep) {
  const long double start = number_of(sweep.start);
  const long double stop = number_of(sweep.stop);
  const long double step = number_of(sweep.step);
  if (step == 0 || std::isnan(step)) throw std::invalid_argument("range(): the step must not be 0");
  const auto is_int = [](const Node& node) { return node.kind == Kind::kInt; };
  if (is_int(sweep.start) && is_int(sweep.stop) && is_int(sweep.step))
    return whole_values(sweep.start.integer, sweep.stop.integer, sweep.step.integer);
  std::vector<std::string> values;
  for (int64_t i = 0;; ++i) {
    const long double at = start + step * static_cast<long double>(i);
    if (!(step > 0 ? at < stop : at > stop)) return values;
    add_value(values, python_float(static_cast<double>(at)));
  }
}

[[noreturn]] void fail_beyond_64_bits() {
  throw std::invalid_argument("a range cannot go beyond 64 bits; give smaller numbers");
}

Node sum(const Node& a, const Node& b) {
  if (a.kind != Kind::kInt || b.kind != Kind::kInt) return Node::of(number_of(a) + number_of(b));
  int64_t total = 0;
  if (__builtin_add_overflow(a.integer, b.integer, &total)) fail_beyond_64_bits();
  return Node::of(total);
}

/// -number, or the number itself unless `really`.
Node negated(const Node& number, bool really) {
  if (!really) return number;
  if (number.kind != Kind::kInt) return Node::of(-number_of(number));
  if (number.integer == INT64_MIN) fail_beyond_64_bits();
  return Node::of(-number.integer);
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&name](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

std::vector<std::string> sweep_values(const Sweep& sweep, const std::vector<std::string>& options) {
  std::vector<std::string> values;
  switch (sweep.kind) {
    case SweepKind::kSimpleChoice:
    case SweepKind::kChoice:
      for (const SweepItem& item : sweep.items) values.push_back(item.text);
      return values;
    case SweepKind::kRange:
      return range_values(sweep);
    case SweepKind::kGlob:
      for (const std::string& name : options) {
        if (matches_any(sweep.include, name) && !matches_any(sweep.exclude, name))
          values.push_back(name);
      }
      return values;
    case SweepKind::kInterval:
      throw std::invalid_argument(
          "interval() needs a search algorithm, which --multirun does not have; use range() or "
          "choice()");
  }
  return values;
}

Sweep sorted_sweep(Sweep sweep, bool reverse) {
  if (sweep.kind != SweepKind::kRange) {
    std::stable_sort(
        sweep.items.begin(), sweep.items.end(), [reverse](const SweepItem& a, const SweepItem& b) {
          return reverse ? python_less(b.value, a.value) : python_less(a.value, b.value);
        });
    return sweep;
  }
  const bool turn = reverse ? number_of(sweep.start) < number_of(sweep.stop)
                            : number_of(sweep.start) > number_of(sweep.stop);
  if (!turn) return sweep;
  const Node step = negated(sweep.step, (number_of(sweep.step) < 0) != reverse);
  const Node start = sum(sweep.stop, step);
  sweep.stop = sum(sweep.start, step);
  sweep.start = start;
  sweep.step = negated(sweep.step, true);
  return sweep;
}

std::string override_text(const Node& value) {
  if (value.kind == Kind::kNull) return "null";
  std::vector<std::string> parts;
  if (value.kind == Kind::kList) {
    for (const Node& item : value.items) parts.push_back(override_text(item));
    return fmt::format("[{}]", joined(parts));
  }
  if (value.kind == Kind::kMap) {
    for (const Entry& entry : value.entries)
      parts.push_back(override_text(entry.key) + ":" + override_text(entry.value));
    return fmt::format("{{{}}}", joined(parts));
  }
  if (value.kind != Kind::kString) return python_str(value);
  std::string out;
  for (const char c : value.text) {
    if (std::string_view("\\()[]{}:=, \t").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace ddp::train
