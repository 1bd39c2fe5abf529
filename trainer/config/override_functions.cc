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

/// A cast reaches into lists and the values of maps.
Node cast_all(const Node& value, Node (*cast)(const Node&)) {
  Node out = value;
  for (Node& item : out.items) item = cast_all(item, cast);
  for (Entry& entry : out.entries) entry.value = cast_all(entry.value, cast);
  return value.is_container() ? out : cast(value);
}

const Node& only_argument(const OverrideCall& call) {
  if (call.arguments.size() > 1) {
    throw std::invalid_argument(
        fmt::format("{}() of several values is a sweep, which needs --multirun", call.name));
  }
  const bool named = !call.arguments.empty() && !call.arguments[0].first.empty();
  if (call.arguments.empty() || (named && call.arguments[0].first != "value")) {
    throw std::invalid_argument(fmt::format("{}() takes one value", call.name));
  }
  return call.arguments[0].second;
}

bool less(const Node& a, const Node& b) {
  const bool texts = a.kind == Kind::kString && b.kind == Kind::kString;
  if (texts) return a.text < b.text;
  if (a.kind == Kind::kList && b.kind == Kind::kList) {
    return std::lexicographical_compare(a.items.begin(), a.items.end(), b.items.begin(),
                                        b.items.end(), less);
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

Node sorted(const OverrideCall& call) {
  bool reverse = false;
  const Node* list = nullptr;
  for (const auto& [name, value] : call.arguments) {
    if (name == "reverse") {
      reverse = value.kind == Kind::kBool && value.boolean;
    } else if (list != nullptr) {
      throw std::invalid_argument("sort() of several values is a sweep, which needs --multirun");
    } else {
      list = &value;
    }
  }
  if (list == nullptr) throw std::invalid_argument("empty sort input");
  Node out = *list;
  const auto before = [reverse](const Node& a, const Node& b) {
    return reverse ? less(b, a) : less(a, b);
  };
  std::stable_sort(out.items.begin(), out.items.end(), before);
  return out;
}

}  // namespace

Node evaluate_override_call(const OverrideCall& call) {
  if (call.name == "int") return cast_all(only_argument(call), cast_int);
  if (call.name == "float") return cast_all(only_argument(call), cast_float);
  if (call.name == "str") return cast_all(only_argument(call), cast_str);
  if (call.name == "bool") return cast_all(only_argument(call), cast_bool);
  if (call.name == "sort") return sorted(call);
  if (call.name == "shuffle" && call.arguments.size() == 1) {
    const Node& list = call.arguments[0].second;
    // A shuffled list would be another one on each rank.
    if (list.items.size() < 2) return list;
    throw std::invalid_argument("shuffle() would give each rank another list; write the order out");
  }
  const std::vector<std::string> sweeps = {"choice", "range", "interval", "glob", "tag", "shuffle"};
  if (std::find(sweeps.begin(), sweeps.end(), call.name) != sweeps.end()) {
    throw std::invalid_argument(
        fmt::format("{}() describes a sweep, which needs --multirun", call.name));
  }
  const std::string near = nearest(call.name, {"int", "float", "str", "bool", "sort"});
  throw std::invalid_argument(fmt::format(
      "Unknown function '{}'; {}", call.name,
      near.empty() ? "quote the value if it is a text" : "did you mean '" + near + "'?"));
}

}  // namespace ddp::train
