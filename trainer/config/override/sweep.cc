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

void check_step(double step) {
  if (step == 0 || std::isnan(step)) throw std::invalid_argument("range(): the step must not be 0");
}

/// Steps are counted in integers, so that 0.1 ten times is 1 and not a little less.
std::vector<std::string> range_values(const Sweep& sweep) {
  const double stop = number_of(sweep.stop);
  const double step = number_of(sweep.step);
  const bool whole = sweep.start.kind == Kind::kInt && sweep.stop.kind == Kind::kInt &&
                     sweep.step.kind == Kind::kInt;
  check_step(step);
  std::vector<std::string> values;
  // Hydra adds decimal fractions exactly; long double holds the sum of a few thousand as well.
  for (int64_t i = 0;; ++i) {
    const long double at = static_cast<long double>(number_of(sweep.start)) +
                           static_cast<long double>(step) * static_cast<long double>(i);
    const auto value = static_cast<double>(at);
    const bool inside =
        step > 0 ? at < static_cast<long double>(stop) : at > static_cast<long double>(stop);
    if (!inside) return values;
    if (values.size() >= kMostValues)
      throw std::invalid_argument("range() has too many values; give fewer");
    values.push_back(whole ? std::to_string(sweep.start.integer + sweep.step.integer * i)
                           : python_float(value));
  }
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
  const auto moved = [reverse](const Node& from, const Node& step) {
    const double size = std::fabs(number_of(step)) * (reverse ? -1 : 1);
    if (from.kind == Kind::kInt && step.kind == Kind::kInt)
      return Node::of(from.integer + static_cast<int64_t>(size));
    return Node::of(number_of(from) + size);
  };
  const Node start = moved(sweep.stop, sweep.step);
  sweep.stop = moved(sweep.start, sweep.step);
  sweep.start = start;
  sweep.step =
      sweep.step.kind == Kind::kInt ? Node::of(-sweep.step.integer) : Node::of(-sweep.step.real);
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
