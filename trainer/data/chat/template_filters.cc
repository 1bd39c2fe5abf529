// Filters.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/tokenizer/letter_case.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;

Value or_else(const Value& value, const Value& otherwise) {
  return value.is_undefined() ? otherwise : value;
}

/// 'a.b.0' of `value`.
Value at_path(TemplateRun& run, Value value, const Value& path) {
  if (path.is_integer()) return element(run, value, path);
  const std::string& names = text_of(path);
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find('.', at), names.size());
    const std::string name = names.substr(at, end - at);
    const bool digits = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    if (value.is_undefined()) refuse_value("an undefined value has no elements");
    value = element(run, value, digits ? Value(std::stoi(name)) : Value(name));
    at = end + 1;
  }
  return value;
}

/// As sorting and comparing filters see a value.
Value key_of(TemplateRun& run, const Value& value, const Value& path, bool exact) {
  Value key = path.is_undefined() || path.is_none() ? value : at_path(run, value, path);
  run.spend(key.weight());
  return key.is_text() && !exact ? Value(in_case(*key.text(), false)) : key;
}

TemplateArguments without_first(const TemplateArguments& arguments, std::size_t count) {
  TemplateArguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() +
                            static_cast<std::ptrdiff_t>(std::min(count, rest.positional.size())));
  return rest;
}

Value default_of(TemplateRun&, const Value& value, const TemplateArguments& given) {
  const auto a = bound("default", given, {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (a[1].is_true() && !value.is_true());
  return missing ? or_else(a[0], "") : value;
}

Value tojson(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = a[0].is_true();
  style.sorted = a[3].is_true();
  const int64_t indent = integer_of(a[1], -1);
  if (indent > 32) refuse_value("an indent above 32 is not supported");
  style.indent = static_cast<int>(std::max<int64_t>(indent, -1));
  if (a[1].is_integer()) {
    style.between = ",";
    style.indent = std::max(style.indent, 0);
  }
  if (!a[2].is_undefined() && !a[2].is_none()) {
    const auto separators = items_of(a[2]);
    if (separators.size() != 2) refuse_value("separators are two texts");
    style.between = text_of(separators[0]);
    style.after_key = text_of(separators[1]);
  }
  const auto per_item =
      static_cast<std::size_t>(style.indent + 1) * static_cast<std::size_t>(value.depth() + 1);
  run.spend(value.weight() +
            value.weight() / 32 * (per_item + style.between.size() + style.after_key.size()));
  return json_text(value, style);
}

Value length(TemplateRun& run, const Value& value, const TemplateArguments&) {
  if (value.dict() != nullptr) return value.dict()->items.size();
  if (value.list() != nullptr && !value.list()->is_generator()) return value.list()->items.size();
  if (value.is_undefined()) return 0;
  if (!value.is_text())
    refuse_value(fmt::format("object of type '{}' has no len()", value.type_name()));
  run.spend(value.weight());
  const std::string& text = *value.text();
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

Value join(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("join", given, {"d", "attribute"});
  const std::string between = a[0].is_undefined() ? "" : printed(a[0]);
  std::string whole;
  bool first = true;
  for (const Value& each : items_of(value)) {
    const Value part = a[1].is_undefined() ? each : at_path(run, each, a[1]);
    run.spend(part.weight() + between.size());
    if (!std::exchange(first, false)) whole += between;
    whole += printed(part);
  }
  return whole;
}

Value first(TemplateRun&, const Value& value, const TemplateArguments&) {
  const auto* list = value.list();
  const std::size_t before = list != nullptr ? list->taken : 0;
  const auto items = items_of(value);
  if (list != nullptr && list->is_generator() && !items.empty()) list->taken = before + 1;
  return items.empty() ? Value() : items.front();
}
Value last(TemplateRun&, const Value& value, const TemplateArguments&) {
  if (value.list() != nullptr && value.list()->is_generator())
    refuse_value("'generator' object is not reversible");
  const auto items = items_of(value);
  return items.empty() ? Value() : items.back();
}

Value reverse(TemplateRun&, const Value& value, const TemplateArguments&) {
  auto items = items_of(value);
  std::reverse(items.begin(), items.end());
  if (value.list() != nullptr && value.list()->is_generator()) return Value::list(std::move(items));
  if (!value.is_text()) return Value::iterable("generator", std::move(items));
  std::string text;
  for (const Value& each : items) text += *each.text();
  return text;
}

Value replace(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("replace", given, {"old", "new", "count"});
  return replaced(run, printed(value), printed(a[0]), printed(a[1]), integer_of(a[2], -1));
}

Value trim(TemplateRun&, const Value& value, const TemplateArguments& given) {
  return stripped(printed(value), bound("trim", given, {"chars"})[0], true, true);
}

Value items(TemplateRun& run, const Value& value, const TemplateArguments&) {
  if (value.is_undefined()) return Value::iterable("generator", {});
  if (value.dict() == nullptr) refuse_value("Can only get item pairs from a mapping.");
  return Value::iterable("generator", items_of(called_method(run, value, "items", {})));
}

Value map(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  TemplateValues made;
  if (!value.is_true()) return Value::iterable("generator", {});
  if (given.positional.empty()) {
    const auto a = bound("map", given, {"attribute", "default"});
    for (const Value& each : items_of(value))
      made.push_back(or_else(at_path(run, each, a[0]), a[1]));
  } else {
    if (text_of(given.positional[0]) == "map") refuse_value("map of map is not supported");
    const auto rest = without_first(given, 1);
    for (const Value& each : items_of(value))
      made.push_back(filtered(run, text_of(given.positional[0]), each, rest));
  }
  return Value::iterable("generator", std::move(made));
}

/// select, reject and those by attribute.
Value chosen(TemplateRun& run, const Value& value, const TemplateArguments& given, bool wanted,
             bool by_attribute) {
  const std::size_t skip = by_attribute ? 1 : 0;
  const auto& arguments = given.positional;
  if (arguments.size() < skip) refuse_value("the name of an attribute is missing");
  const auto rest = without_first(given, skip + 1);
  auto kept = value.is_true() ? items_of(value) : TemplateValues{};
  std::erase_if(kept, [&](const Value& each) {
    run.spend(sizeof(Value));
    const Value tested = by_attribute ? at_path(run, each, arguments[0]) : each;
    const bool passes = arguments.size() == skip
                            ? tested.is_true()
                            : passes_test(run, text_of(arguments[skip]), tested, rest);
    return passes != wanted;
  });
  return Value::iterable("generator", std::move(kept));
}

Value sorted(TemplateRun& run, TemplateValues items, const Value& path, bool exact, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& each : items) {
    Value key = key_of(run, each, path, exact);
    keyed.emplace_back(std::move(key), std::move(each));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    run.spend(std::min(a.first.weight(), b.first.weight()));
    return reverse ? compared(b.first, a.first) < 0 : compared(a.first, b.first) < 0;
  });
  items.clear();
  for (auto& each : keyed) items.push_back(std::move(each.second));
  return Value::list(std::move(items));
}

Value sort(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("sort", given, {"reverse", "case_sensitive", "attribute"});
  if (a[2].is_text() && a[2].text()->find(',') != std::string::npos)
    refuse_value("sorting by several attributes is not supported");
  return sorted(run, items_of(value), a[2], a[1].is_true(), a[0].is_true());
}

Value dictsort(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("dictsort", given, {"case_sensitive", "by", "reverse"});
  const bool by_value = a[1].is_text() && *a[1].text() == "value";
  return sorted(run, items_of(items(run, value, {})), by_value ? 1 : 0, a[0].is_true(),
                a[2].is_true());
}

Value integer(TemplateRun&, const Value& value, const TemplateArguments& given) {
  const auto a = bound("int", given, {"default", "base"});
  const int64_t base = integer_of(a[1], 10);
  if (base != 10) refuse_value("int with a base is not supported");
  if (value.is_integer()) return value.integer();
  const auto whole_part = [](double number) {
    if (std::abs(number) >= 9e18) refuse_value("a number is too large");
    return static_cast<int64_t>(number);
  };
  if (value.is_float() && std::isfinite(value.number())) return whole_part(value.number());
  if (value.is_text()) {
    const std::string text = stripped(*value.text(), {}, true, true);
    int64_t number = 0;
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const auto read = std::from_chars(begin, text.data() + text.size(), number);
    if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size())
      return number;
    double fraction = 0;
    const auto other = std::from_chars(begin, text.data() + text.size(), fraction);
    if (!text.empty() && other.ptr == text.data() + text.size() && std::isfinite(fraction))
      return whole_part(fraction);
  }
  return or_else(a[0], 0);
}

Value indent(TemplateRun& run, const Value& value, const TemplateArguments& given) {
  const auto a = bound("indent", given, {"width", "first", "blank"});
  const std::string text = printed(value);
  std::string margin;
  if (a[0].is_text()) {
    margin = *a[0].text();
  } else {
    const int64_t width = integer_of(a[0], 4);
    if (width > 1000) refuse_value("an indent above 1000 is not supported");
    margin.assign(static_cast<std::size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  return indented(run, text, margin, a[1].is_true(), a[2].is_true());
}

using Filter = Value (*)(TemplateRun&, const Value&, const TemplateArguments&);

const std::unordered_map<std::string, Filter>& filters() {
  static const auto* const all = new std::unordered_map<std::string, Filter>{
      {"default", default_of},
      {"d", default_of},
      {"tojson", tojson},
      {"length", length},
      {"count", length},
      {"join", join},
      {"first", first},
      {"last", last},
      {"reverse", reverse},
      {"replace", replace},
      {"trim", trim},
      {"items", items},
      {"map", map},
      {"sort", sort},
      {"dictsort", dictsort},
      {"int", integer},
      {"indent", indent},
      {"title", [](auto&, const Value& v, auto&) { return Value(titled_text(printed(v))); }},
      {"string", [](auto&, const Value& v, auto&) { return Value(printed(v)); }},
      {"safe", [](auto&, const Value& v, auto&) { return Value(printed(v)); }},
      {"upper", [](auto&, const Value& v, auto&) { return Value(in_case(printed(v), true)); }},
      {"lower", [](auto&, const Value& v, auto&) { return Value(in_case(printed(v), false)); }},
      {"capitalize",
       [](auto&, const Value& v, auto&) { return Value(capitalized_text(printed(v))); }},
      {"list", [](auto&, const Value& v, auto&) { return Value::list(items_of(v)); }},
      {"select", [](auto& r, const Value& v, auto& a) { return chosen(r, v, a, true, false); }},
      {"reject", [](auto& r, const Value& v, auto& a) { return chosen(r, v, a, false, false); }},
      {"selectattr", [](auto& r, const Value& v, auto& a) { return chosen(r, v, a, true, true); }},
      {"rejectattr",
       [](auto& r, const Value& v, auto& a) { return chosen(r, v, a, false, true); }}};
  return *all;
}

}  // namespace

Value filtered(TemplateRun& run, const std::string& filter, const Value& value,
               const TemplateArguments& arguments) {
  const auto found = filters().find(filter);
  if (found == filters().end())
    refuse_value(fmt::format("the filter '{:.80}' is not supported", filter));
  const bool copies = filter != "default" && filter != "d" && filter != "length" &&
                      filter != "count" && filter != "items";
  run.spend(copies ? value.weight() : 32);
  constexpr std::string_view kSplitting[] = {"list",       "first",      "last",   "reverse",
                                             "join",       "map",        "select", "reject",
                                             "selectattr", "rejectattr", "sort"};
  if (value.is_text() &&
      std::find(std::begin(kSplitting), std::end(kSplitting), filter) != std::end(kSplitting))
    run.spend(value.text()->size() * kBytesOfCharacter);
  Value made = found->second(run, value, arguments);
  run.spend(made.is_text() ? made.weight() : 32);
  return made;
}

}  // namespace ddp::train
