#include "trainer/config/override_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "trainer/config/override_casts.h"
#include "trainer/config/python_number.h"
#include "trainer/config/suggest.h"

namespace ddp::train {
namespace {

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
    if (value->sweep || !is_number(node))
      throw std::invalid_argument(
          fmt::format("mismatch type argument {}: {} is incompatible with Union[int, float]", name,
                      value->sweep ? "a sweep" : python_type(node)));
    return node.kind == Kind::kBool ? Node::of(int64_t{node.boolean ? 1 : 0}) : node;
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

std::vector<OverrideValue> positional(const OverrideCall& call) {
  std::vector<OverrideValue> values;
  for (const auto& argument : call.arguments) {
    if (argument.name.empty()) values.push_back(argument.value);
  }
  return values;
}

/// The argument of that name; nullptr where there is none, or null.
const OverrideValue* named(const OverrideCall& call, const std::string& name) {
  for (const auto& argument : call.arguments) {
    const bool null = !argument.value.sweep && argument.value.item.value.kind == Kind::kNull;
    if (argument.name == name) return null ? nullptr : &argument.value;
  }
  return nullptr;
}

void check_names(const OverrideCall& call, const std::vector<std::string>& names) {
  for (const auto& argument : call.arguments) {
    const bool known = std::find(names.begin(), names.end(), argument.name) != names.end();
    if (argument.name.empty() || known) continue;
    throw std::invalid_argument(
        fmt::format("{}(): got an unexpected keyword argument '{}'", call.name, argument.name));
  }
}

[[noreturn]] void fail_type(const std::string& name, const std::string& wanted) {
  throw std::invalid_argument(fmt::format("mismatch type argument {}: give {}", name, wanted));
}

bool is_sortable_sweep(const OverrideValue& value) {
  return value.sweep && value.sweep->kind != SweepKind::kGlob &&
         value.sweep->kind != SweepKind::kInterval;
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
  check_names(call, {"value"});
  auto values = positional(call);
  if (const OverrideValue* value = named(call, "value")) {
    if (!values.empty())
      throw std::invalid_argument("cannot use both position and named arguments");
    values.push_back(*value);
  }
  if (values.empty()) throw std::invalid_argument("No positional args or value specified");
  if (values.size() > 1) return swept(cast_sweep(simple_choice(values, call.name), cast));
  if (values[0].sweep) return swept(cast_sweep(*values[0].sweep, cast));
  const SweepItem item = cast_item(values[0].item, cast);
  return {item, std::nullopt};
}

OverrideValue choice_call(const OverrideCall& call) {
  check_names(call, {});
  const auto values = positional(call);
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
  check_names(call, {"sweep"});
  auto values = positional(call);
  if (values.empty())
    throw std::invalid_argument("Not enough arguments to tag, must take at least a sweep");
  if (const OverrideValue* sweep = named(call, "sweep")) values.push_back(*sweep);
  if (!values.back().sweep)
    throw std::invalid_argument("Last argument to tag() must be a choice(), range() or interval()");
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    if (values[i].sweep || values[i].item.value.kind != Kind::kString)
      throw std::invalid_argument("tag arguments type must be string");
  }
  return values.back();
}

bool reverse_of(const OverrideCall& call) {
  for (const auto& argument : call.arguments) {
    if (argument.name != "reverse") continue;
    if (argument.value.sweep || argument.value.item.value.kind != Kind::kBool)
      fail_type("reverse", "true or false");
    return argument.value.item.value.boolean;
  }
  return false;
}

OverrideValue sorted_list(Node list, bool reverse) {
  std::stable_sort(list.items.begin(), list.items.end(), [reverse](const Node& a, const Node& b) {
    return reverse ? python_less(b, a) : python_less(a, b);
  });
  return plain(std::move(list));
}

OverrideValue sort_call(const OverrideCall& call) {
  check_names(call, {"list", "sweep", "reverse"});
  const bool reverse = reverse_of(call);
  const OverrideValue* list = named(call, "list");
  const OverrideValue* sweep = named(call, "sweep");
  const auto values = positional(call);
  for (const OverrideValue& value : values) {
    const bool null = !value.sweep && value.item.value.kind == Kind::kNull;
    if (null || (value.sweep && !is_sortable_sweep(value)))
      fail_type("args", "numbers, texts, lists, choice() or range()");
  }
  const bool is_list = list != nullptr && list->item.value.kind == Kind::kList && !list->sweep;
  if (list != nullptr && !is_list) fail_type("list", "a list");
  if (sweep != nullptr && !is_sortable_sweep(*sweep)) fail_type("sweep", "choice() or range()");
  if (list != nullptr) return sorted_list(list->item.value, reverse);
  if (sweep != nullptr) return swept(sorted_sweep(*sweep->sweep, reverse));
  if (values.empty()) throw std::invalid_argument("empty sort input");
  if (values.size() > 1) {
    Sweep choice = simple_choice(values, "sort");
    for (const SweepItem& item : choice.items) {
      if (item.value.is_container())
        throw std::invalid_argument("Invalid arguments: only numbers and texts can be sorted");
    }
    return swept(sorted_sweep(std::move(choice), reverse));
  }
  if (values[0].sweep) return swept(sorted_sweep(*values[0].sweep, reverse));
  if (values[0].item.value.kind != Kind::kList) return values[0];
  return sorted_list(values[0].item.value, reverse);
}

/// As the function sees it: no quotes around an argument itself, the last of one name, no position
/// behind a name.
OverrideCall normalized(const OverrideCall& call) {
  OverrideCall out{call.name, {}};
  bool after_name = false;
  for (auto argument : call.arguments) {
    after_name = after_name || !argument.name.empty();
    if (after_name && argument.name.empty())
      throw std::invalid_argument("positional argument follows keyword argument");
    SweepItem& item = argument.value.item;
    if (item.value.quoted) {
      item.value.quoted = false;
      item.text = override_text(item.value);
    }
    std::erase_if(out.arguments, [&](const auto& before) {
      return !argument.name.empty() && before.name == argument.name;
    });
    out.arguments.push_back(std::move(argument));
  }
  return out;
}

OverrideValue shuffle_call(const OverrideCall& call) {
  check_names(call, {"list", "sweep"});
  auto values = positional(call);
  if (const OverrideValue* list = named(call, "list")) values = {*list};
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

OverrideValue evaluate_override_call(const OverrideCall& call) {
  const OverrideCall normal = normalized(call);
  if (normal.name == "int") return cast_call(normal, cast_int);
  if (normal.name == "float") return cast_call(normal, cast_float);
  if (normal.name == "str") return cast_call(normal, cast_str);
  if (normal.name == "bool") return cast_call(normal, cast_bool);
  if (normal.name == "sort") return sort_call(normal);
  if (normal.name == "shuffle") return shuffle_call(normal);
  if (normal.name == "choice") return choice_call(normal);
  if (normal.name == "range") return range_call(normal);
  if (normal.name == "interval") return interval_call(normal);
  if (normal.name == "glob") return glob_call(normal);
  if (normal.name == "tag") return tag_call(normal);
  const std::vector<std::string> known = {"bool",  "choice",  "float", "glob", "int", "interval",
                                          "range", "shuffle", "sort",  "str",  "tag"};
  const std::string near = nearest(normal.name, known);
  throw std::invalid_argument(fmt::format(
      "Unknown function '{}'; {}", normal.name,
      near.empty()
          ? fmt::format("available: {}; quote the value if it is a text", fmt::join(known, ","))
          : "did you mean '" + near + "'?"));
}

}  // namespace ddp::train
