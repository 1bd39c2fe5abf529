#include "trainer/config/override_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "trainer/config/message.h"
#include "trainer/config/python_number.h"
#include "trainer/config/suggest.h"

namespace ddp::train {
namespace {

[[noreturn]] void fail_cast(const Node& value, const std::string& to) {
  throw std::invalid_argument(fmt::format("Cannot cast '{}' of type '{}' to {}",
                                          shown(python_str(value)), python_type(value), to));
}

Node cast_int(const Node& value) {
  switch (value.kind) {
    case Kind::kInt:
      return value;
    case Kind::kBool:
      return Node::of(int64_t{value.boolean ? 1 : 0});
    case Kind::kFloat:
      if (!std::isfinite(value.real) || std::fabs(value.real) >= 9.2e18) fail_cast(value, "int");
      return Node::of(static_cast<int64_t>(value.real));
    case Kind::kString:
      if (auto parsed = python_int(value.text)) return *parsed;
      break;
    default:
      break;
  }
  fail_cast(value, "int");
}

Node cast_float(const Node& value) {
  switch (value.kind) {
    case Kind::kFloat:
      return value;
    case Kind::kBool:
      return Node::of(value.boolean ? 1.0 : 0.0);
    case Kind::kInt:
      if (auto parsed = python_float_from(python_str(value))) return Node::of(*parsed);
      break;
    case Kind::kString:
      if (auto parsed = python_float_from(value.text)) return Node::of(*parsed);
      break;
    default:
      break;
  }
  fail_cast(value, "float");
}

Node cast_str(const Node& value) {
  if (value.kind == Kind::kNull) fail_cast(value, "str");
  if (value.kind == Kind::kBool) return Node::of(std::string(value.boolean ? "true" : "false"));
  return Node::of(python_str(value));
}

Node cast_bool(const Node& value) {
  switch (value.kind) {
    case Kind::kBool:
      return value;
    case Kind::kInt:
      return Node::of(value.integer != 0 || !value.text.empty());
    case Kind::kFloat:
      return Node::of(value.real != 0.0);
    case Kind::kString: {
      std::string text = value.text;
      std::transform(text.begin(), text.end(), text.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (text == "true" || text == "false") return Node::of(text == "true");
      break;
    }
    default:
      break;
  }
  fail_cast(value, "bool");
}

using Cast = Node (*)(const Node&);

/// A cast reaches into lists and the values of maps.
Node cast_all(const Node& value, Cast cast) {
  Node out = value;
  for (Node& item : out.items) item = cast_all(item, cast);
  for (Entry& entry : out.entries) entry.value = cast_all(entry.value, cast);
  return value.is_container() ? out : cast(value);
}

SweepItem cast_item(const SweepItem& item, Cast cast) {
  const Node value = cast_all(item.value, cast);
  const bool text = value.kind == Kind::kString && item.value.kind == Kind::kString;
  return {value, text ? item.text : override_text(value)};
}

Sweep cast_sweep(Sweep sweep, Cast cast) {
  switch (sweep.kind) {
    case SweepKind::kSimpleChoice:
    case SweepKind::kChoice:
      for (SweepItem& item : sweep.items) item = cast_item(item, cast);
      return sweep;
    case SweepKind::kRange:
      if (cast != cast_int && cast != cast_float)
        throw std::invalid_argument("Range can only be cast to int or float");
      for (Node* bound : {&sweep.start, &sweep.stop, &sweep.step}) *bound = cast(*bound);
      return sweep;
    case SweepKind::kInterval:
      if (cast != cast_int && cast != cast_float)
        throw std::invalid_argument("Intervals cannot be cast to str or bool");
      for (Node* bound : {&sweep.start, &sweep.stop}) *bound = cast(*bound);
      return sweep;
    case SweepKind::kGlob:
      break;
  }
  throw std::invalid_argument("glob() cannot be cast");
}

OverrideValue plain(Node node) {
  std::string text = override_text(node);
  return {{std::move(node), std::move(text)}, std::nullopt};
}

OverrideValue swept(Sweep sweep) { return {{}, std::move(sweep)}; }

/// What the parameters of a function got, by name: positional ones in order, then named ones.
class Bound {
 public:
  Bound(const OverrideCall& call, const std::vector<std::string>& names) : name_(call.name) {
    std::size_t at = 0;
    for (const auto& argument : call.arguments) {
      if (argument.name.empty() && at >= names.size())
        throw std::invalid_argument(name_ + "(): too many positional arguments");
      const std::string& name = argument.name.empty() ? names[at++] : argument.name;
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw std::invalid_argument(
            fmt::format("{}(): got an unexpected keyword argument '{}'", name_, name));
      if (find(name) != nullptr)
        throw std::invalid_argument(
            fmt::format("{}(): multiple values for argument '{}'", name_, name));
      values_.emplace_back(name, &argument.value);
    }
  }

  const OverrideValue* find(const std::string& name) const {
    for (const auto& [known, value] : values_) {
      if (known == name) return value;
    }
    return nullptr;
  }

  /// A number; absent: null.
  Node number(const std::string& name) const {
    const OverrideValue* value = find(name);
    if (value == nullptr) return Node::null();
    const Node& node = value->item.value;
    const bool fine = !value->sweep && (node.kind == Kind::kInt || node.kind == Kind::kFloat);
    if (!fine)
      throw std::invalid_argument(
          fmt::format("mismatch type argument {}: {} is incompatible with Union[int, float]", name,
                      value->sweep ? "a sweep" : python_type(node)));
    return node;
  }

  /// A text or a list of texts.
  std::vector<std::string> texts(const std::string& name) const {
    const OverrideValue* value = find(name);
    if (value == nullptr) return {};
    const Node& node = value->item.value;
    std::vector<std::string> out;
    if (node.kind == Kind::kString) out.push_back(node.text);
    for (const Node& item : node.items) out.push_back(python_str(item));
    if (value->sweep || (node.kind != Kind::kString && node.kind != Kind::kList))
      throw std::invalid_argument(
          fmt::format("mismatch type argument {}: give a text such as * or a list of texts", name));
    return out;
  }

 private:
  const std::string& name_;
  std::vector<std::pair<std::string, const OverrideValue*>> values_;
};

/// Positional arguments, with the one named `name` in their place when it alone is given.
std::vector<OverrideValue> several(const OverrideCall& call,
                                   const std::vector<std::string>& names) {
  std::vector<OverrideValue> values;
  const OverrideValue* named = nullptr;
  for (const auto& argument : call.arguments) {
    if (argument.name.empty()) {
      values.push_back(argument.value);
    } else if (std::find(names.begin(), names.end(), argument.name) != names.end() &&
               named == nullptr) {
      named = &argument.value;
    } else {
      throw std::invalid_argument(
          fmt::format("{}(): got an unexpected keyword argument '{}'", call.name, argument.name));
    }
  }
  if (named == nullptr) return values;
  if (!values.empty()) throw std::invalid_argument("cannot use both position and named arguments");
  return {*named};
}

Sweep simple_choice(const std::vector<OverrideValue>& values, const std::string& function) {
  Sweep sweep;
  for (const OverrideValue& value : values) {
    if (value.sweep) throw std::invalid_argument(function + "(): nesting choices is not supported");
    sweep.items.push_back(value.item);
  }
  return sweep;
}

OverrideValue cast_call(const OverrideCall& call, Cast cast) {
  const auto values = several(call, {"value"});
  if (values.empty()) throw std::invalid_argument("No positional args or value specified");
  if (values.size() > 1) return swept(cast_sweep(simple_choice(values, call.name), cast));
  if (values[0].sweep) return swept(cast_sweep(*values[0].sweep, cast));
  const SweepItem item = cast_item(values[0].item, cast);
  return {item, std::nullopt};
}

OverrideValue choice_call(const OverrideCall& call) {
  const auto values = several(call, {});
  if (values.empty()) throw std::invalid_argument("empty choice is not legal");
  const bool simple =
      values.size() == 1 && values[0].sweep && values[0].sweep->kind == SweepKind::kSimpleChoice;
  Sweep sweep = simple ? *values[0].sweep : simple_choice(values, "choice");
  for (const SweepItem& item : sweep.items) {
    if (item.value.kind == Kind::kNull)
      throw std::invalid_argument("mismatch type argument args: NoneType is not a choice");
  }
  sweep.kind = SweepKind::kChoice;
  return swept(std::move(sweep));
}

OverrideValue range_call(const OverrideCall& call) {
  const Bound bound(call, {"start", "stop", "step"});
  Sweep sweep;
  sweep.kind = SweepKind::kRange;
  sweep.start = bound.number("start");
  sweep.stop = bound.number("stop");
  sweep.step = bound.number("step");
  if (sweep.start.kind == Kind::kNull)
    throw std::invalid_argument("missing a required argument: 'start'");
  if (sweep.step.kind == Kind::kNull) sweep.step = Node::of(int64_t{1});
  if (sweep.stop.kind == Kind::kNull) {
    sweep.stop = sweep.start;
    sweep.start = Node::of(int64_t{0});
  }
  return swept(std::move(sweep));
}

OverrideValue interval_call(const OverrideCall& call) {
  const Bound bound(call, {"start", "end"});
  Sweep sweep;
  sweep.kind = SweepKind::kInterval;
  sweep.start = bound.number("start");
  sweep.stop = bound.number("end");
  if (sweep.start.kind == Kind::kNull || sweep.stop.kind == Kind::kNull)
    throw std::invalid_argument("interval() takes a start and an end");
  return swept(std::move(sweep));
}

OverrideValue glob_call(const OverrideCall& call) {
  const Bound bound(call, {"include", "exclude"});
  Sweep sweep;
  sweep.kind = SweepKind::kGlob;
  if (bound.find("include") == nullptr)
    throw std::invalid_argument("missing a required argument: 'include'");
  sweep.include = bound.texts("include");
  sweep.exclude = bound.texts("exclude");
  return swept(std::move(sweep));
}

OverrideValue tag_call(const OverrideCall& call) {
  const auto values = several(call, {});
  if (values.empty())
    throw std::invalid_argument("Not enough arguments to tag, must take at least a sweep");
  if (!values.back().sweep)
    throw std::invalid_argument("Last argument to tag() must be a choice(), range() or interval()");
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    if (values[i].sweep || values[i].item.value.kind != Kind::kString)
      throw std::invalid_argument("tag arguments type must be string");
  }
  return values.back();
}

/// Takes `reverse=...` out of the call.
bool take_reverse(OverrideCall& call) {
  const auto found = std::find_if(call.arguments.begin(), call.arguments.end(),
                                  [](const auto& a) { return a.name == "reverse"; });
  if (found == call.arguments.end()) return false;
  const Node value = found->value.item.value;
  call.arguments.erase(found);
  if (value.kind != Kind::kBool)
    throw std::invalid_argument(fmt::format(
        "mismatch type argument reverse: {} is incompatible with bool", python_type(value)));
  return value.boolean;
}

OverrideValue sort_call(OverrideCall call) {
  const bool reverse = take_reverse(call);
  const auto values = several(call, {"list", "sweep"});
  if (values.empty()) throw std::invalid_argument("empty sort input");
  if (values.size() > 1) {
    Sweep sweep = simple_choice(values, "sort");
    for (const SweepItem& item : sweep.items) {
      if (item.value.is_container() || item.value.kind == Kind::kNull)
        throw std::invalid_argument("Invalid arguments: only numbers and texts can be sorted");
    }
    return swept(sorted_sweep(std::move(sweep), reverse));
  }
  if (values[0].sweep) return swept(sorted_sweep(*values[0].sweep, reverse));
  if (values[0].item.value.kind != Kind::kList) return values[0];
  Node list = values[0].item.value;
  std::stable_sort(list.items.begin(), list.items.end(), [reverse](const Node& a, const Node& b) {
    return reverse ? value_less(b, a) : value_less(a, b);
  });
  return plain(std::move(list));
}

OverrideValue shuffle_call(const OverrideCall& call) {
  const auto values = several(call, {"list", "sweep"});
  const bool order = values.size() != 1 || values[0].sweep || values[0].item.value.items.size() > 1;
  // A shuffled list would be another one on each rank.
  if (order)
    throw std::invalid_argument("shuffle() would give each rank another order; write it out");
  if (values[0].item.value.kind == Kind::kList) return values[0];
  Node list = Node::list();
  list.items.push_back(values[0].item.value);
  return plain(std::move(list));
}

}  // namespace

bool value_less(const Node& a, const Node& b) {
  const bool texts = a.kind == Kind::kString && b.kind == Kind::kString;
  if (texts) return a.text < b.text;
  if (a.kind == Kind::kList && b.kind == Kind::kList) {
    return std::lexicographical_compare(a.items.begin(), a.items.end(), b.items.begin(),
                                        b.items.end(), value_less);
  }
  const auto number = [](const Node& node) {
    if (node.kind == Kind::kInt) return static_cast<double>(node.integer);
    if (node.kind == Kind::kBool) return node.boolean ? 1.0 : 0.0;
    if (node.kind == Kind::kFloat) return node.real;
    throw std::invalid_argument(
        fmt::format("sort() cannot compare values of type {}", python_type(node)));
  };
  return number(a) < number(b);
}

OverrideValue evaluate_override_call(const OverrideCall& call) {
  if (call.name == "int") return cast_call(call, cast_int);
  if (call.name == "float") return cast_call(call, cast_float);
  if (call.name == "str") return cast_call(call, cast_str);
  if (call.name == "bool") return cast_call(call, cast_bool);
  if (call.name == "sort") return sort_call(call);
  if (call.name == "shuffle") return shuffle_call(call);
  if (call.name == "choice") return choice_call(call);
  if (call.name == "range") return range_call(call);
  if (call.name == "interval") return interval_call(call);
  if (call.name == "glob") return glob_call(call);
  if (call.name == "tag") return tag_call(call);
  const std::vector<std::string> known = {"bool",  "choice",  "float", "glob", "int", "interval",
                                          "range", "shuffle", "sort",  "str",  "tag"};
  const std::string near = nearest(call.name, known);
  throw std::invalid_argument(fmt::format(
      "Unknown function '{}'; {}", call.name,
      near.empty()
          ? fmt::format("available: {}; quote the value if it is a text", fmt::join(known, ","))
          : "did you mean '" + near + "'?"));
}

}  // namespace ddp::train
