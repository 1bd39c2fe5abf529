#include "trainer/data/chat/template_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;
using Values = std::vector<Value>;

[[noreturn]] void refuse_value(const std::string& what) { throw UserError(what); }

const std::string& text(const Value& value, const std::string& where) {
  if (!value.is_string()) refuse_value(where + " is for texts only");
  return value.get_ref<const std::string&>();
}

std::string stripped(std::string_view whole, const std::string& characters, bool left, bool right) {
  const std::size_t begin = left ? whole.find_first_not_of(characters) : 0;
  if (begin == std::string_view::npos) return "";
  const std::size_t end = right ? whole.find_last_not_of(characters) + 1 : whole.size();
  return std::string(whole.substr(begin, std::max(begin, end) - begin));
}

/// str.strip() of Python: Unicode's white space and four control characters.
std::string stripped_of_space(std::string_view whole, bool left, bool right) {
  constexpr std::string_view kSeparators = "\x1c\x1d\x1e\x1f";
  const auto is_separator = [&](char c) { return kSeparators.find(c) != std::string_view::npos; };
  for (bool changed = left; changed && !whole.empty();) {
    const std::size_t bytes = is_separator(whole.front()) ? 1 : spaces_after(whole);
    whole.remove_prefix(bytes);
    changed = bytes > 0;
  }
  for (bool changed = right; changed && !whole.empty();) {
    const std::size_t bytes =
        is_separator(whole.back()) ? 1 : whole.size() - spaces_before(whole, whole.size());
    whole.remove_suffix(bytes);
    changed = bytes > 0;
  }
  return std::string(whole);
}

std::string strip(const std::string& whole, const std::vector<Value>& arguments, bool left,
                  bool right) {
  if (arguments.empty() || arguments[0].is_null()) return stripped_of_space(whole, left, right);
  return stripped(whole, text(arguments[0], "an argument"), left, right);
}

std::string replaced(std::string whole, const std::string& from, const std::string& to) {
  if (from.empty()) refuse_value("replace needs a text to replace");
  for (std::size_t at = whole.find(from); at != std::string::npos;
       at = whole.find(from, at + to.size()))
    whole.replace(at, from.size(), to);
  return whole;
}

std::string in_case(std::string whole, bool upper) {
  for (char& c : whole) {
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return whole;
}

Value split(const std::string& whole, const std::string& by) {
  if (by.empty()) refuse_value("split needs a text to split at");
  Value parts = Value::array();
  std::size_t at = 0;
  for (std::size_t end = whole.find(by); end != std::string::npos; end = whole.find(by, at)) {
    parts.push_back(whole.substr(at, end - at));
    at = end + by.size();
  }
  parts.push_back(whole.substr(at));
  return parts;
}

int64_t length_of(const Value& value) {
  if (!value.is_string()) {
    if (!value.is_structured()) refuse_value("length is of texts, lists and mappings");
    return static_cast<int64_t>(value.size());
  }
  const auto& whole = value.get_ref<const std::string&>();
  return std::count_if(whole.begin(), whole.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

Value items_of(const Value& mapping) {
  if (!mapping.is_object()) refuse_value("items is of mappings");
  Value items = Value::array();
  for (const auto& [key, value] : mapping.items()) items.push_back(Value::array({key, value}));
  return items;
}

Value joined(const Value& list, const std::string& between) {
  std::string whole;
  for (const Value& each : list) whole += (whole.empty() ? "" : between) + printed(each);
  return whole;
}

std::string text_argument(const Values& arguments, std::size_t index,
                          const std::string& otherwise) {
  return index < arguments.size() ? text(arguments[index], "an argument") : otherwise;
}

bool holds(const Value& container, const Value& part) {
  if (container.is_string())
    return text(container, "in").find(text(part, "in a text")) != std::string::npos;
  if (container.is_object()) return part.is_string() && container.contains(text(part, "in"));
  return container.is_array() &&
         std::find(container.begin(), container.end(), part) != container.end();
}

Value number_result(const std::string& sign, const Value& left, const Value& right) {
  if (!left.is_number() || !right.is_number())
    refuse_value(fmt::format("'{}' of these values is not supported", sign));
  if (left.is_number_float() || right.is_number_float())
    refuse_value("fractions are not supported");
  const auto a = left.get<int64_t>();
  const auto b = right.get<int64_t>();
  if (std::max(std::abs(a), std::abs(b)) > (int64_t{1} << 30))
    refuse_value("a number is too large");
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (b == 0) refuse_value("division by zero");
  const int64_t rest = (a % b + b) % b;  // Python's: of the divisor's sign
  if (sign == "%") return rest;
  if (sign == "//") return (a - rest) / b;
  refuse_value(fmt::format("'{}' is not supported", sign));
}

}  // namespace

Value undefined_value() { return Value(Value::value_t::discarded); }

bool is_true(const Value& value) {
  if (value.is_discarded() || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::string printed(const Value& value) {
  if (value.is_discarded()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return value.dump();
  refuse_value("printing a list, mapping or fraction is not supported; use tojson");
}

std::string json_text(const Value& value) {
  if (!value.is_structured()) return value.dump();
  std::string out;
  const bool list = value.is_array();
  for (const auto& [key, each] : value.items()) {
    if (!out.empty()) out += ", ";
    if (!list) out += Value(key).dump() + ": ";
    out += json_text(each);
  }
  return list ? "[" + out + "]" : "{" + out + "}";
}

Value filtered(const std::string& filter, const Value& value, const Values& arguments) {
  if (filter == "default" || filter == "d") {
    const bool of_false = arguments.size() > 1 && is_true(arguments[1]) && !is_true(value);
    return value.is_discarded() || of_false ? (arguments.empty() ? Value("") : arguments[0])
                                            : value;
  }
  if (filter == "tojson" && arguments.empty()) return json_text(value);
  if (filter == "length" || filter == "count") return length_of(value);
  if (filter == "trim") return strip(printed(value), arguments, true, true);
  if (filter == "string" || filter == "safe") return printed(value);
  if (filter == "upper") return in_case(printed(value), true);
  if (filter == "lower") return in_case(printed(value), false);
  if (filter == "items") return items_of(value);
  if (filter == "join") return joined(value, text_argument(arguments, 0, ""));
  if (filter == "list" && value.is_array()) return value;
  if (filter == "first" && value.is_array())
    return value.empty() ? undefined_value() : value.front();
  if (filter == "last" && value.is_array()) return value.empty() ? undefined_value() : value.back();
  if (filter == "replace" && arguments.size() == 2)
    return replaced(printed(value), text_argument(arguments, 0, ""),
                    text_argument(arguments, 1, ""));
  refuse_value(fmt::format("the filter '{}' is not supported", filter));
}

bool passes_test(const std::string& test, const Value& value, const Values& arguments) {
  if (test == "defined") return !value.is_discarded();
  if (test == "undefined") return value.is_discarded();
  if (test == "none") return value.is_null();
  if (test == "string") return value.is_string();
  if (test == "mapping") return value.is_object();
  if (test == "iterable" || test == "sequence") return value.is_string() || value.is_structured();
  if (test == "number") return value.is_number();
  if (test == "boolean") return value.is_boolean();
  if (test == "true") return value == true;
  if (test == "false") return value == false;
  if ((test == "equalto" || test == "eq") && arguments.size() == 1) return value == arguments[0];
  refuse_value(fmt::format("the test '{}' is not supported", test));
}

Value called_method(const std::string& method, const Value& value, const Values& arguments) {
  if (value.is_object() && method == "items") return items_of(value);
  if (value.is_object() && method == "get" && !arguments.empty()) {
    const Value found = element(value, arguments[0]);
    if (!found.is_discarded()) return found;
    return arguments.size() > 1 ? arguments[1] : Value(nullptr);
  }
  const std::string whole = text(value, method + "()");
  const auto argument = [&](std::size_t i, const char* otherwise) {
    return text_argument(arguments, i, otherwise);
  };
  if (method == "strip") return strip(whole, arguments, true, true);
  if (method == "lstrip") return strip(whole, arguments, true, false);
  if (method == "rstrip") return strip(whole, arguments, false, true);
  if (method == "startswith" && arguments.size() == 1) return whole.starts_with(argument(0, ""));
  if (method == "endswith" && arguments.size() == 1) return whole.ends_with(argument(0, ""));
  if (method == "split" && arguments.size() == 1) return split(whole, argument(0, ""));
  if (method == "replace" && arguments.size() == 2)
    return replaced(whole, argument(0, ""), argument(1, ""));
  if (method == "upper") return in_case(whole, true);
  if (method == "lower") return in_case(whole, false);
  refuse_value(fmt::format("the method '{}' is not supported", method));
}

Value element(const Value& value, const Value& key) {
  if (value.is_discarded()) refuse_value("an undefined value has no elements");
  if (value.is_object() && key.is_string()) {
    const auto found = value.find(key.get_ref<const std::string&>());
    return found == value.end() ? undefined_value() : *found;
  }
  if (!value.is_array() || !key.is_number_integer()) return undefined_value();
  const auto size = static_cast<int64_t>(value.size());
  const auto given = key.get<int64_t>();
  const int64_t index = given < 0 ? given + size : given;
  return index < 0 || index >= size ? undefined_value() : value[static_cast<std::size_t>(index)];
}

Value slice(const Value& list, const Value& first, const Value& last, const Value& step) {
  if (!list.is_array()) refuse_value("slices are of lists only");
  const auto size = static_cast<int64_t>(list.size());
  const int64_t stride = step.is_number_integer() ? step.get<int64_t>() : 1;
  if (stride != 1 && stride != -1) refuse_value("slices have steps of 1 or -1 only");
  const int64_t lowest = stride > 0 ? 0 : -1;
  const int64_t highest = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, int64_t otherwise) {
    if (!given.is_number_integer()) return otherwise;
    const auto index = given.get<int64_t>();
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  const int64_t end = bound(last, stride > 0 ? size : -1);
  Value part = Value::array();
  for (int64_t at = bound(first, stride > 0 ? 0 : size - 1); stride > 0 ? at < end : at > end;
       at += stride)
    part.push_back(list[static_cast<std::size_t>(at)]);
  return part;
}

Value binary(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "==" || sign == "!=") {
    const bool same = left.is_discarded() || right.is_discarded()
                          ? left.is_discarded() && right.is_discarded()
                          : left == right;
    return same == (sign == "==");
  }
  if (sign == "in") return holds(right, left);
  if (sign == "~") return printed(left) + printed(right);
  if (sign == "+" && left.is_string() && right.is_string())
    return left.get<std::string>() + right.get<std::string>();
  if (sign == "+" && left.is_array() && right.is_array()) {
    Value both = left;
    for (const Value& each : right) both.push_back(each);
    return both;
  }
  if (sign == "<" || sign == ">" || sign == "<=" || sign == ">=") {
    if (left.is_number() != right.is_number() || left.is_string() != right.is_string())
      refuse_value("these values have no order");
    if (sign == "<") return left < right;
    if (sign == ">") return right < left;
    return sign == "<=" ? left <= right : right <= left;
  }
  return number_result(sign, left, right);
}

}  // namespace ddp::train
