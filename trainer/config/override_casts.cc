#include "trainer/config/override_casts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "trainer/config/message.h"
#include "trainer/config/python_number.h"

namespace ddp::train {
namespace {

[[noreturn]] void fail_cast(const Node& value, const std::string& to) {
  throw std::invalid_argument(fmt::format("Cannot cast '{}' of type '{}' to {}",
                                          shown(python_str(value)), python_type(value), to));
}

/// A cast reaches into lists and the values of maps.
Node cast_all(const Node& value, Cast cast) {
  Node out = value;
  for (Node& item : out.items) item = cast_all(item, cast);
  for (Entry& entry : out.entries) entry.value = cast_all(entry.value, cast);
  if (value.is_container()) return out;
  out = cast(value);
  out.quoted = false;
  return out;
}

}  // namespace

Node cast_int(const Node& value) {
  switch (value.kind) {
    case Kind::kInt:
      return value;
    case Kind::kBool:
      return Node::of(int64_t{value.boolean ? 1 : 0});
    case Kind::kFloat:
      if (auto whole = int_of_float(value.real)) return Node::of(*whole);
      break;
    case Kind::kString:
      if (auto parsed = python_int(value.text)) return Node::of(*parsed);
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
      return Node::of(static_cast<double>(value.integer));
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
    case Kind::kNull:
      return Node::of(false);
    case Kind::kBool:
      return value;
    case Kind::kInt:
      return Node::of(value.integer != 0);
    case Kind::kFloat:
      return Node::of(value.real != 0.0);
    case Kind::kString: {
      const std::string text = ascii_lower(value.text);
      if (text == "true" || text == "false") return Node::of(text == "true");
      break;
    }
    default:
      break;
  }
  fail_cast(value, "bool");
}

SweepItem cast_item(const SweepItem& item, Cast cast) {
  const Node value = cast_all(item.value, cast);
  return {value, override_text(value)};
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

}  // namespace ddp::train
