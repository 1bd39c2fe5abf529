// The functions of overrides, which are sweeps: choice(a,b), range(1,4), glob(*).
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

/// A function with its parameters; without any it takes values that have no name.
struct Function {
  std::string_view name;
  std::vector<std::string> parameters;
  Sweep (*run)(const class Arguments&);
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
      } else if (values_.size() >= parameters.size() && !parameters.empty()) {
        fail("too many arguments; remove some");
      } else {
        values_.push_back(std::move(value));
      }
    }
    for (std::size_t i = 0; i < values_.size() && !parameters.empty(); ++i) {
      if (!named_.emplace(parameters[i], values_[i]).second)
        fail(fmt::format("argument {} is given twice; drop one", parameters[i]));
    }
  }

  /// The arguments without a name.
  const std::vector<OverrideValue>& values() const { return values_; }

  /// A number; `otherwise` where it is not given, or null.
  Node number(const std::string& name, const Node& otherwise) const {
    const auto found = named_.find(name);
    if (found == named_.end()) return otherwise;
    const Node& node = found->second.item.value;
    if (found->second.sweep) fail(name + " must be a number");
    if (node.kind == Kind::kNull) return otherwise;
    if (!is_number(node)) fail(name + " must be a number");
    return node.kind == Kind::kBool ? Node::of(int64_t{node.boolean}) : node;
  }

  /// A text or a list of texts; none where it is not given, or null.
  std::vector<std::string> texts(const std::string& name) const {
    const auto found = named_.find(name);
    if (found == named_.end()) return {};
    const Node& node = found->second.item.value;
    const bool fits = node.kind == Kind::kString || node.kind == Kind::kList;
    if (found->second.sweep || (!fits && node.kind != Kind::kNull))
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

Sweep choice_call(const Arguments& arguments) {
  Sweep sweep = choice_of(arguments.values());
  if (sweep.items.empty()) bad_call("choice() needs at least one value");
  for (const SweepItem& item : sweep.items) {
    if (item.value.kind == Kind::kNull) bad_call("null cannot be a choice; leave it out");
  }
  return sweep;
}

Sweep range_call(const Arguments& arguments) {
  Node start = arguments.number("start", Node::null());
  Node stop = arguments.number("stop", Node::null());
  if (start.kind == Kind::kNull) bad_call("range() needs a start, e.g. range(1,4)");
  if (stop.kind == Kind::kNull) stop = std::exchange(start, Node::of(int64_t{0}));
  return range_sweep(start, stop, arguments.number("step", Node::of(int64_t{1})));
}

Sweep glob_call(const Arguments& arguments) {
  Sweep sweep;
  sweep.include = arguments.texts("include");
  sweep.exclude = arguments.texts("exclude");
  if (sweep.include.empty()) bad_call("glob() needs a pattern, e.g. glob(*)");
  return sweep;
}

}  // namespace

Sweep call_function(const std::string& name, std::vector<FunctionArgument> arguments) {
  static const std::vector<Function> functions = {{"choice", {}, choice_call},
                                                  {"glob", {"include", "exclude"}, glob_call},
                                                  {"range", {"start", "stop", "step"}, range_call}};
  std::vector<std::string> known;
  for (const Function& function : functions) {
    known.emplace_back(function.name);
    if (function.name != name) continue;
    Sweep sweep = function.run(Arguments(function, std::move(arguments)));
    sweep.is_called = true;
    return sweep;
  }
  bad_call(fmt::format("unknown function '{}'; {}", name,
                       did_you_mean(name, known,
                                    fmt::format("known: {}; write the value itself, or quote it if "
                                                "it is text",
                                                fmt::join(known, ",")))));
}

}  // namespace ddp::train
