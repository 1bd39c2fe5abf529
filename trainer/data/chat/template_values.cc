#include "trainer/data/chat/template_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/letter_case.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;
using Pair = std::pair<Value, Value>;

constexpr std::size_t kItemWeight = 32;
constexpr std::size_t kPairWeight = 160;

int within_depth(int depth) {
  if (depth > kDeepestTemplateValue) refuse_value("a value is nested too deeply");
  return depth;
}

/// Equal for equal keys: True, 1 and 1.0 are one.
std::string key_text(const Value& key) {
  if (key.is_text()) return "t" + *key.text();
  if (key.is_undefined()) return "u";
  if (key.is_integer()) return fmt::format("n{}", key.integer());
  if (key.is_number()) {
    const double number = key.number() + 0.0;  // no -0
    return key.is_float() && number != std::floor(number) ? "f" + represented(key)
                                                          : fmt::format("n{:.0f}", number);
  }
  if (key.is_none()) return "0";
  if (const auto* list = key.list(); list != nullptr && list->tuple) {
    std::string text = "(";
    for (const Value& each : list->items) {
      const std::string part = key_text(each);
      text += fmt::format("{}:{}", part.size(), part);
    }
    return text;
  }
  refuse_value(fmt::format("unhashable type: '{}'", key.type_name()));
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::abs(number);
  const bool plain = number == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string text_represented(const std::string& text) {
  const bool both = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = both ? '"' : '\'';
  std::string out(1, quote);
  for (const std::string_view c : characters(text)) {
    const uint32_t point = decode_utf8(c, 0).value;
    if (c == "\n")
      out += "\\n";
    else if (c == "\t")
      out += "\\t";
    else if (c == "\r")
      out += "\\r";
    else if (c == "\\" || c[0] == quote)
      (out += '\\') += c;
    else if (is_printable(point))
      out += c;
    else if (point < 0x100)
      out += fmt::format("\\x{:02x}", point);
    else if (point < 0x10000)
      out += fmt::format("\\u{:04x}", point);
    else
      out += fmt::format("\\U{:08x}", point);
  }
  return out + quote;
}

std::string json_string(const std::string& text, bool ascii) {
  const std::string dumped = nlohmann::json(text).dump(-1, ' ', ascii);
  if (ascii) return dumped;  // nlohmann escapes DEL as Python does then
  std::string out;           // nlohmann escapes DEL, Python does not
  for (std::size_t at = 0; at < dumped.size(); ++at) {
    if (dumped[at] == '\\' && dumped.compare(at, 6, "\\u007f") == 0) {
      out += '\x7f';
      at += 5;
    } else {
      out += dumped[at];
      if (dumped[at] == '\\') out += dumped[++at];
    }
  }
  return out;
}

std::string json_key(const Value& key, const JsonStyle& style) {
  if (key.is_text()) return json_string(*key.text(), style.ascii);
  if (key.is_number() || key.is_none()) return '"' + json_text(key, style) + '"';
  refuse_value("keys must be str, int, float, bool or None, not " + key.type_name());
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string text(const Value& value, int level) const {
    if (value.is_none()) return "null";
    if (value.is_bool()) return *value.get<bool>() ? "true" : "false";
    if (value.is_text()) return json_string(*value.text(), style_.ascii);
    if (value.is_float()) {
      const double number = value.number();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
      return float_text(number);
    }
    if (value.is_integer()) return printed(value);
    if (const auto* list = value.list(); list != nullptr && list->type.empty()) {
      std::vector<std::string> parts;
      for (const Value& each : list->items) parts.push_back(text(each, level + 1));
      return enclosed('[', parts, ']', level);
    }
    if (const auto* dict = value.dict()) {
      auto items = dict->items;
      if (style_.sorted) {
        std::stable_sort(items.begin(), items.end(), [](const Pair& a, const Pair& b) {
          return compared(a.first, b.first) < 0;
        });
      }
      std::vector<std::string> parts;
      for (const auto& [key, each] : items)
        parts.push_back(json_key(key, style_) + style_.after_key + text(each, level + 1));
      return enclosed('{', parts, '}', level);
    }
    refuse_value(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
  }

 private:
  std::string enclosed(char open, const std::vector<std::string>& parts, char close,
                       int level) const {
    std::string out(1, open);
    const auto new_line = [&](int depth) {
      if (style_.indent >= 0 && !parts.empty())
        out += '\n' + std::string(static_cast<std::size_t>(style_.indent * depth), ' ');
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) out += style_.between;
      new_line(level + 1);
      out += parts[i];
    }
    new_line(level);
    return out + close;
  }

  const JsonStyle& style_;
};

}  // namespace

void refuse_value(const std::string& what) { throw UserError(what); }

Value Value::list(TemplateValues items, bool tuple) {
  auto made = std::make_shared<List>();
  for (const Value& each : items) {
    made->weight += each.weight();
    made->depth = std::max(made->depth, within_depth(each.depth() + 1));
  }
  made->items = std::move(items);
  made->tuple = tuple;
  Value value;
  value.data_ = std::shared_ptr<const List>(std::move(made));
  return value;
}

Value Value::iterable(std::string type, TemplateValues items, std::string shown) {
  auto made = std::make_shared<List>(*list(std::move(items)).list());
  made->type = std::move(type);
  made->shown = std::move(shown);
  Value value;
  value.data_ = std::shared_ptr<const List>(std::move(made));
  return value;
}

Value Value::dict(std::vector<Pair> items) {
  auto made = std::make_shared<Dict>();
  for (Pair& each : items) {
    const auto [found, added] = made->index.try_emplace(key_text(each.first), made->items.size());
    made->weight += kPairWeight + each.first.weight() + each.second.weight();
    made->depth = std::max(
        {made->depth, within_depth(each.first.depth() + 1), within_depth(each.second.depth() + 1)});
    if (added)
      made->items.push_back(std::move(each));
    else
      made->items[found->second].second = std::move(each.second);
  }
  Value value;
  value.data_ = std::shared_ptr<const Dict>(std::move(made));
  return value;
}

Value Value::function(Function function) {
  if (function.self) within_depth(function.self->depth() + 1);
  Value value;
  value.data_ = std::make_shared<const Function>(std::move(function));
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get_ref<const std::string&>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    refuse_value(fmt::format("the number {} is too large", json.dump()));
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_array()) {
    TemplateValues items;
    for (const auto& each : json) items.push_back(from_json(each));
    return list(std::move(items));
  }
  std::vector<Pair> items;
  for (const auto& [key, each] : json.items()) items.emplace_back(key, from_json(each));
  return dict(std::move(items));
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_text()) return !text()->empty();
  if (list() != nullptr) return list()->is_generator() || !list()->items.empty();
  return dict() == nullptr || !dict()->items.empty();
}

std::size_t Value::weight() const {
  if (is_text()) return kItemWeight + text()->size();
  if (list() != nullptr) return kItemWeight + list()->weight;
  if (dict() != nullptr) return kItemWeight + dict()->weight;
  return kItemWeight;
}

int Value::depth() const {
  if (list() != nullptr) return list()->depth;
  if (dict() != nullptr) return dict()->depth;
  if (loop() != nullptr) return loop()->value_depth + 1;
  if (name_space() != nullptr) return kDeepestTemplateValue / 2;
  return function() != nullptr && function()->self ? function()->self->depth() + 1 : 0;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (list() != nullptr && !list()->type.empty()) return list()->type;
  if (list() != nullptr) return list()->tuple ? "tuple" : "list";
  if (dict() != nullptr) return "dict";
  if (name_space() != nullptr) return "Namespace";
  return loop() != nullptr ? "LoopContext" : "function";
}

const Value* Value::Dict::find(const Value& key) const {
  const auto found = index.find(key_text(key));
  return found == index.end() ? nullptr : &items[found->second].second;
}

std::string printed(const Value& value) {
  if (value.is_undefined()) return "";
  return value.is_text() ? *value.text() : represented(value);
}

std::string represented(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return *value.get<bool>() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_float()) return float_text(value.number());
  if (value.is_text()) return text_represented(*value.text());
  std::string out;
  if (const auto* list = value.list()) {
    if (list->is_generator() || (list->type == "range" && list->shown.empty()))
      refuse_value(
          fmt::format("printing a {} is not supported; write | list after it", list->type));
    if (!list->shown.empty()) return list->shown;
    for (const Value& each : list->items) out += (out.empty() ? "" : ", ") + represented(each);
    if (!list->type.empty()) return fmt::format("{}([{}])", list->type, out);
    if (!list->tuple) return "[" + out + "]";
    return "(" + out + (list->items.size() == 1 ? ",)" : ")");
  }
  if (const auto* dict = value.dict()) {
    for (const auto& [key, each] : dict->items)
      out += (out.empty() ? "" : ", ") + represented(key) + ": " + represented(each);
    return "{" + out + "}";
  }
  refuse_value(fmt::format("printing a {} is not supported", value.type_name()));
}

std::string json_text(const Value& value, const JsonStyle& style) {
  return JsonWriter(style).text(value, 0);
}

bool equal(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return left.integer() == right.integer();
  if (left.is_number() && right.is_number()) return left.number() == right.number();
  if (left.is_text() && right.is_text()) return *left.text() == *right.text();
  if (const auto* a = left.list(), *b = right.list(); a != nullptr && b != nullptr) {
    return a->tuple == b->tuple && a->type == b->type &&
           std::equal(a->items.begin(), a->items.end(), b->items.begin(), b->items.end(), equal);
  }
  if (const auto* a = left.dict(), *b = right.dict(); a != nullptr && b != nullptr) {
    return a->items.size() == b->items.size() &&
           std::all_of(a->items.begin(), a->items.end(), [b](const Pair& each) {
             const Value* other = b->find(each.first);
             return other != nullptr && equal(each.second, *other);
           });
  }
  if (left.name_space() != nullptr) return left.name_space() == right.name_space();
  return (left.is_undefined() && right.is_undefined()) || (left.is_none() && right.is_none());
}

int compared(const Value& left, const Value& right) {
  const auto sign = [](const auto& a, const auto& b) { return a < b ? -1 : a == b ? 0 : 1; };
  if (left.is_integer() && right.is_integer()) return sign(left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return sign(left.number(), right.number());
  if (left.is_text() && right.is_text()) return sign(*left.text(), *right.text());
  const auto *a = left.list(), *b = right.list();
  if (a == nullptr || b == nullptr || a->tuple != b->tuple || !(a->type + b->type).empty()) {
    refuse_value(
        fmt::format("'{}' and '{}' cannot be ordered", left.type_name(), right.type_name()));
  }
  for (std::size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
    if (!equal(a->items[i], b->items[i])) return compared(a->items[i], b->items[i]);
  }
  return sign(a->items.size(), b->items.size());
}

/// Where the next iteration begins: generators, as Python's, are consumed by the first one.
static TemplateValues::const_iterator first_left(const Value::List& list) {
  if (list.taken == Value::List::kUnknown)
    refuse_value("a generator after a loop with break is not supported; write | list after it");
  return list.items.begin() + static_cast<std::ptrdiff_t>(list.taken);
}

bool contains(const Value& container, const Value& part) {
  if (container.is_text()) {
    if (!part.is_text())
      refuse_value("'in <string>' requires string as left operand, not " + part.type_name());
    return container.text()->find(*part.text()) != std::string::npos;
  }
  if (container.dict() != nullptr) return container.dict()->find(part) != nullptr;
  if (container.is_undefined()) return false;
  if (container.list() == nullptr)
    refuse_value(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  const Value::List& list = *container.list();
  const auto found = std::find_if(first_left(list), list.items.end(),
                                  [&](const Value& each) { return equal(each, part); });
  const auto past = found - list.items.begin() + (found != list.items.end() ? 1 : 0);
  if (list.is_generator()) list.taken = static_cast<std::size_t>(past);
  return found != list.items.end();
}

TemplateValues items_of(const Value& value) {
  TemplateValues items;
  if (value.is_undefined()) return items;
  if (const auto* list = value.list()) {
    items.assign(first_left(*list), list->items.end());
    if (list->is_generator()) list->taken = list->items.size();
    return items;
  }
  if (value.is_text()) {
    for (const std::string_view each : characters(*value.text())) items.emplace_back(each);
    return items;
  }
  if (value.dict() == nullptr)
    refuse_value(fmt::format("'{}' object is not iterable", value.type_name()));
  for (const auto& each : value.dict()->items) items.push_back(each.first);
  return items;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(1, decode_utf8(text, at).bytes);
    found.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return found;
}

}  // namespace ddp::train
