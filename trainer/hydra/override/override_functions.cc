// The functions of overrides: int(1.5), sort(3,1), choice(a,b) and so on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "trainer/hydra/override/override_value.h"
#include "trainer/hydra/yaml/python_number.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

[[noreturn]] void bad_call(const std::string& what) { throw std::invalid_argument(what); }

OverrideValue plain(Node node) {
  std::string text = override_text(node);
  return {{std::move(node), std::move(text)}, std::nullopt};
}

OverrideValue swept(Sweep sweep) { return {{}, std::move(sweep)}; }

/// Whether the value has this kind and is not a sweep.
bool is(const OverrideValue& value, Kind kind) {
  return !value.sweep && value.item.value.kind == kind;
}

/// A function with its parameters; one that is variadic takes any number of values without a name.
struct Function {
  std::string_view name;
  std::vector<std::string> parameters;
  bool variadic;
  OverrideValue (*run)(const class Arguments&);
};

/// The arguments of a call, as Python binds them.
class Arguments {
 public:
  Arguments(const Function& function, std::vector<FunctionArgument> given) : function_(function) {
    const auto& parameters = function.parameters;
    for (auto& [name, value] : given) {
      unquote(value.item);
      if (!name.empty()) {
        if (std::find(parameters.begin(), parameters.end(), name) == parameters.end())
          fail(fmt::format("no argument is named '{}'; check the name", name));
        named_.insert_or_assign(name, std::move(value));
      } else if (!named_.empty()) {
        fail("a positional argument follows a named one; name it as well");
      } else if (values_.size() >= parameters.size() && !function.variadic) {
        fail("too many arguments; remove some");
      } else {
        values_.push_back(std::move(value));
      }
    }
    for (std::size_t i = 0; i < values_.size() && !function.variadic; ++i) {
      if (!named_.emplace(parameters[i], values_[i]).second)
        fail(fmt::format("argument {} is given twice; drop one", parameters[i]));
    }
  }

  /// The arguments without a name.
  const std::vector<OverrideValue>& values() const { return values_; }
  /// nullptr where it is not given, or null.
  const OverrideValue* find(const std::string& name) const {
    const auto found = named_.find(name);
    const bool given = found != named_.end() && !is(found->second, Kind::kNull);
    return given ? &found->second : nullptr;
  }
  /// A number; `otherwise` where it is not given.
  Node number(const std::string& name, const Node& otherwise) const {
    const OverrideValue* value = find(name);
    if (value == nullptr) return otherwise;
    const Node& node = value->item.value;
    if (value->sweep || !is_number(node)) fail(name + " must be a number");
    return node.kind == Kind::kBool ? Node::of(int64_t{node.boolean}) : node;
  }
  /// A text or a list of texts.
  std::vector<std::string> texts(const std::string& name) const {
    const OverrideValue* value = find(name);
    if (value == nullptr) return {};
    const Node& node = value->item.value;
    if (!is(*value, Kind::kString) && !is(*value, Kind::kList))
      fail(name + " must be a pattern such as * or a list of patterns");
    std::vector<std::string> out;
    if (node.kind == Kind::kString) out.push_back(node.text);
    for (const Node& item : node.items) out.push_back(python_str(item));
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    bad_call(fmt::format("{}(): {}", function_.name, what));
  }

  /// A text as a whole argument is seen without its quotes.
  static void unquote(SweepItem& item) {
    if (!item.value.quoted) return;
    item.value.quoted = false;
    item.text = override_text(item.value);
  }

  const Function& function_;
  std::vector<OverrideValue> values_;
  std::map<std::string, OverrideValue> named_;
};

using Cast = Node (*)(const Node&);

[[noreturn]] void fail_cast(const Node& value, std::string_view to) {
  bad_call(fmt::format("cannot convert '{}' ({}) to {}; give another value",
                       shown(python_str(value)), python_type(value), to));
}

Node cast_int(const Node& value) {
  std::optional<int64_t> whole;
  if (value.kind == Kind::kInt) whole = value.integer;
  if (value.kind == Kind::kBool) whole = int64_t{value.boolean};
  if (value.kind == Kind::kFloat) whole = int_of_float(value.real);
  if (value.kind == Kind::kString) whole = python_int(value.text);
  if (!whole) fail_cast(value, "int");
  return Node::of(*whole);
}

Node cast_float(const Node& value) {
  if (is_number(value)) return Node::of(number_of(value));
  std::optional<double> real;
  if (value.kind == Kind::kString) real = python_float_from(value.text);
  if (!real) fail_cast(value, "float");
  return Node::of(*real);
}

Node cast_str(const Node& value) {
  if (value.kind == Kind::kNull) fail_cast(value, "str");
  if (value.kind == Kind::kBool) return Node::of(std::string(value.boolean ? "true" : "false"));
  return Node::of(python_str(value));
}

Node cast_bool(const Node& value) {
  if (is_number(value) || value.kind == Kind::kNull)
    return Node::of(value.kind != Kind::kNull && number_of(value) != 0.0);
  const std::string word = ascii_lower(value.text);
  if (word != "true" && word != "false") fail_cast(value, "bool");
  return Node::of(word == "true");
}

/// A cast reaches into lists and the values of maps.
Node cast_all(const Node& value, Cast cast) {
  if (!value.is_container()) return cast(value);
  Node out = value;
  for (Node& item : out.items) item = cast_all(item, cast);
  for (Entry& entry : out.entries) entry.value = cast_all(entry.value, cast);
  return out;
}

Sweep cast_sweep(Sweep sweep, Cast cast) {
  if (sweep.kind == SweepKind::kGlob) bad_call("glob() cannot be converted; write the values out");
  if (sweep.kind == SweepKind::kRange && cast != cast_int && cast != cast_float)
    bad_call("range() converts to int or float only");
  for (SweepItem& item : sweep.items) item = plain(cast_all(item.value, cast)).item;
  return sweep;
}

template <Cast cast>
OverrideValue cast_call(const Arguments& arguments) {
  const OverrideValue* named = arguments.find("value");
  const auto& values = arguments.values();
  if (values.empty() == (named == nullptr)) bad_call("a conversion takes exactly one value");
  if (values.size() > 1) return swept(cast_sweep(choice_of(values), cast));
  const OverrideValue& value = named != nullptr ? *named : values.front();
  if (value.sweep) return swept(cast_sweep(*value.sweep, cast));
  return plain(cast_all(value.item.value, cast));
}

OverrideValue choice_call(const Arguments& arguments) {
  const auto& values = arguments.values();
  if (values.empty()) bad_call("choice() needs at least one value");
  const bool simple =
      values.size() == 1 && values[0].sweep && values[0].sweep->kind == SweepKind::kSimpleChoice;
  Sweep sweep = simple ? *values[0].sweep : choice_of(values);
  for (const SweepItem& item : sweep.items) {
    if (item.value.kind == Kind::kNull) bad_call("null cannot be a choice; leave it out");
  }
  sweep.kind = SweepKind::kChoice;
  return swept(std::move(sweep));
}

OverrideValue range_call(const Arguments& arguments) {
  Node start = arguments.number("start", Node::null());
  Node stop = arguments.number("stop", Node::null());
  if (start.kind == Kind::kNull) bad_call("range() needs a start, e.g. range(1,4)");
  if (stop.kind == Kind::kNull) stop = std::exchange(start, Node::of(int64_t{0}));
  return swept(range_sweep(start, stop, arguments.number("step", Node::of(int64_t{1}))));
}

OverrideValue interval_call(const Arguments&) {
  bad_call(
      "interval() needs a search algorithm, which trainer does not have; use range() or choice()");
}

OverrideValue glob_call(const Arguments& arguments) {
  Sweep sweep;
  sweep.kind = SweepKind::kGlob;
  if (arguments.find("include") == nullptr) bad_call("glob() needs a pattern, e.g. glob(*)");
  sweep.include = arguments.texts("include");
  sweep.exclude = arguments.texts("exclude");
  return swept(std::move(sweep));
}

OverrideValue tag_call(const Arguments& arguments) {
  auto values = arguments.values();
  if (values.empty()) bad_call("tag() needs tags and a sweep, e.g. tag(a, choice(1,2))");
  if (const OverrideValue* sweep = arguments.find("sweep")) values.push_back(*sweep);
  if (!values.back().sweep) bad_call("the last argument of tag() must be a choice() or range()");
  const bool texts = std::all_of(values.begin(), values.end() - 1, [](const OverrideValue& value) {
    return is(value, Kind::kString);
  });
  if (!texts) bad_call("a tag must be text; quote it");
  return values.back();
}

bool is_sortable(const OverrideValue& value) {
  return value.sweep ? value.sweep->kind != SweepKind::kGlob : !is(value, Kind::kNull);
}

OverrideValue sorted(OverrideValue value, bool falling) {
  const auto less = [falling](const Node& a, const Node& b) {
    return falling ? python_less(b, a) : python_less(a, b);
  };
  if (value.sweep) {
    auto& items = value.sweep->items;
    std::stable_sort(items.begin(), items.end(), [&less](const SweepItem& a, const SweepItem& b) {
      return less(a.value, b.value);
    });
    return value;
  }
  if (!is(value, Kind::kList)) return value;
  auto& items = value.item.value.items;
  std::stable_sort(items.begin(), items.end(), less);
  return plain(std::move(value.item.value));
}

OverrideValue sort_call(const Arguments& arguments) {
  const OverrideValue* reverse = arguments.find("reverse");
  const OverrideValue* list = arguments.find("list");
  const OverrideValue* sweep = arguments.find("sweep");
  const auto& values = arguments.values();
  if (reverse != nullptr && !is(*reverse, Kind::kBool))
    bad_call("sort(): reverse must be true or false");
  if (!std::all_of(values.begin(), values.end(), is_sortable))
    bad_call("sort() takes numbers, text, lists, choice() or range()");
  if (list != nullptr && !is(*list, Kind::kList)) bad_call("sort(): list must be a list");
  if (sweep != nullptr && (!sweep->sweep || !is_sortable(*sweep)))
    bad_call("sort(): sweep must be a choice() or range()");
  const bool falling = reverse != nullptr && reverse->item.value.boolean;
  if (list != nullptr) return sorted(*list, falling);
  if (sweep != nullptr) return sorted(*sweep, falling);
  if (values.empty()) bad_call("sort() needs values");
  if (values.size() == 1) return sorted(values[0], falling);
  const Sweep choice = choice_of(values);
  for (const SweepItem& item : choice.items) {
    if (item.value.is_container()) bad_call("sort(): only numbers and text can be sorted");
  }
  return sorted(swept(choice), falling);
}

/// A shuffled list would be another one on each rank.
OverrideValue shuffle_call(const Arguments& arguments) {
  const OverrideValue* value = arguments.find("list");
  if (value == nullptr && arguments.values().size() == 1) value = &arguments.values().front();
  if (value == nullptr || value->sweep || value->item.value.items.size() > 1)
    bad_call("shuffle() would give each rank a different order; write the order out");
  if (is(*value, Kind::kList)) return *value;
  Node list = Node::list();
  list.items.push_back(value->item.value);
  return plain(std::move(list));
}

const std::vector<Function>& functions() {
  static const std::vector<Function> all = {{"bool", {"value"}, true, cast_call<cast_bool>},
                                            {"choice", {}, true, choice_call},
                                            {"float", {"value"}, true, cast_call<cast_float>},
                                            {"glob", {"include", "exclude"}, false, glob_call},
                                            {"int", {"value"}, true, cast_call<cast_int>},
                                            {"interval", {}, true, interval_call},
                                            {"range", {"start", "stop", "step"}, false, range_call},
                                            {"shuffle", {"list", "sweep"}, true, shuffle_call},
                                            {"sort", {"list", "sweep", "reverse"}, true, sort_call},
                                            {"str", {"value"}, true, cast_call<cast_str>},
                                            {"tag", {"sweep"}, true, tag_call}};
  return all;
}

}  // namespace

OverrideValue call_function(const std::string& name, std::vector<FunctionArgument> arguments) {
  std::vector<std::string> known;
  for (const Function& function : functions()) {
    if (function.name == name) return function.run(Arguments(function, std::move(arguments)));
    known.emplace_back(function.name);
  }
  bad_call(fmt::format("unknown function '{}'; {}", name,
                       did_you_mean(name, known,
                                    fmt::format("known: {}; quote the value if it is text",
                                                fmt::join(known, ",")))));
}

}  // namespace ddp::train
