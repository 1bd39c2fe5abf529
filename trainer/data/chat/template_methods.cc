// Functions, and what values have: members and methods.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"
#include "trainer/tokenizer/letter_case.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;

constexpr std::string_view kTextMethods[] = {
    "strip",      "lstrip",  "rstrip", "startswith", "endswith",     "split",       "rsplit",
    "splitlines", "replace", "upper",  "lower",      "capitalize",   "title",       "find",
    "rfind",      "count",   "join",   "format",     "removeprefix", "removesuffix"};
constexpr std::string_view kDictMethods[] = {"items",      "keys",  "values",  "get",
                                             "copy",       "pop",   "popitem", "update",
                                             "setdefault", "clear", "fromkeys"};
constexpr std::string_view kListMethods[] = {"append", "extend",  "insert", "copy", "pop",
                                             "remove", "reverse", "sort",   "clear"};

bool is_in(std::span<const std::string_view> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value method(const Value& self, const std::string& name) {
  return Value::function({name, std::make_shared<Value>(self)});
}

Value loop_member(const Value& value, const std::string& name) {
  const auto& loop = *value.loop();
  const auto& items = *loop.items;
  const std::size_t left = items.size() - loop.at;
  if (name == "index") return loop.at + 1;
  if (name == "index0") return loop.at;
  if (name == "revindex") return left;
  if (name == "revindex0") return left - 1;
  if (name == "first") return loop.at == 0;
  if (name == "last") return left == 1;
  if (name == "length") return items.size();
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem") return loop.at == 0 ? Value() : items[loop.at - 1];
  if (name == "nextitem") return left == 1 ? Value() : items[loop.at + 1];
  return name == "cycle" || name == "changed" ? method(value, name) : Value();
}

int64_t split_limit(const Value& value) {
  const int64_t given = integer_of(value, -1);
  return given < 0 ? INT64_MAX : given;
}

bool is_python_space(std::string_view character) {
  return !character.empty() && stripped(std::string(character), {}, true, true).empty();
}

/// At white space. Above `limit` of them the last part is the rest, or from the right the first.
TemplateValues words(const std::string& text, int64_t limit, bool from_right) {
  std::vector<std::string_view> found;
  bool inside = false;
  for (const std::string_view each : characters(text)) {
    const bool begins = !std::exchange(inside, !is_python_space(each)) && inside;
    if (begins) found.push_back(each);
    if (inside) found.back() = {found.back().data(), each.data() + each.size()};
  }
  if (limit < std::ssize(found) && from_right) {
    found.erase(found.begin(), found.end() - limit - 1);
    found.front() = {text.data(), found.front().data() + found.front().size()};
  } else if (limit < std::ssize(found)) {
    found.resize(static_cast<std::size_t>(limit) + 1);
    found.back() = {found.back().data(), text.data() + text.size()};
  }
  return {found.begin(), found.end()};
}

TemplateValues split(const std::string& text, const std::string& by, int64_t limit,
                     bool from_right) {
  if (by.empty()) refuse_value("empty separator");
  TemplateValues parts;
  if (from_right) {
    std::size_t end = text.size();
    for (; limit > 0 && end >= by.size(); --limit) {
      const std::size_t at = text.rfind(by, end - by.size());
      if (at == std::string::npos) break;
      parts.emplace_back(text.substr(at + by.size(), end - at - by.size()));
      end = at;
    }
    parts.emplace_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::size_t at = 0;
  for (std::size_t end = text.find(by); end != std::string::npos && limit > 0;
       end = text.find(by, at), --limit) {
    parts.emplace_back(text.substr(at, end - at));
    at = end + by.size();
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

TemplateValues lines(const std::string& text, bool keep_ends) {
  TemplateValues parts;
  std::string line;
  const auto all = characters(text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string_view c = all[i];
    const bool ends = c == "\n" || c == "\r" || c == "\v" || c == "\f" || c == "\x1c" ||
                      c == "\x1d" || c == "\x1e" || c == "\xC2\x85" || c == "\xE2\x80\xA8" ||
                      c == "\xE2\x80\xA9";
    if (!ends || keep_ends) line += c;
    if (!ends) continue;
    if (c == "\r" && i + 1 < all.size() && all[i + 1] == "\n") {
      ++i;
      if (keep_ends) line += '\n';
    }
    parts.emplace_back(std::exchange(line, {}));
  }
  if (!line.empty()) parts.emplace_back(line);
  return parts;
}

/// A prefix or suffix, or a tuple of them.
bool has_affix(const std::string& text, const Value& affix, bool at_end) {
  if (affix.list() != nullptr) {
    const auto& all = affix.list()->items;
    return std::any_of(all.begin(), all.end(),
                       [&](const Value& each) { return has_affix(text, each, at_end); });
  }
  return at_end ? text.ends_with(text_of(affix)) : text.starts_with(text_of(affix));
}

int64_t found_at(const std::string& text, const std::string& part, bool last) {
  const std::size_t at = last ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return -1;
  return std::ssize(characters(std::string_view(text).substr(0, at)));
}

/// '{} {name}'.format(...), without format specifications.
std::string formatted(TemplateRun& run, const std::string& text, const TemplateArguments& given) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += text[at++];
    } else if (c == '{') {
      const std::size_t end = text.find('}', at);
      if (end == std::string::npos) refuse_value("expected '}' before end of string");
      const std::string name = text.substr(at + 1, end - at - 1);
      const auto named = std::find_if(given.named.begin(), given.named.end(),
                                      [&](const auto& each) { return each.first == name; });
      const bool digits = name.find_first_not_of("0123456789") == std::string::npos;
      if (named == given.named.end() && !digits)
        refuse_value(fmt::format("the format field '{:.40}' is not supported", name));
      const std::size_t index = name.empty() ? next++
                                : digits     ? std::strtoul(name.c_str(), nullptr, 10)
                                             : 0;
      if (named == given.named.end() && index >= given.positional.size())
        refuse_value("format() has too few arguments");
      const Value& value = named != given.named.end() ? named->second : given.positional[index];
      run.spend(value.weight());
      out += printed(value);
      at = end;
    } else if (c == '}') {
      refuse_value("Single '}' encountered in format string");
    } else {
      out += c;
    }
  }
  return out;
}

Value text_method(TemplateRun& run, const std::string& text, const std::string& name,
                  const TemplateArguments& given) {
  const auto arguments = [&](std::initializer_list<std::string_view> parameters) {
    return bound(name, given, parameters);
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return stripped(text, arguments({"chars"})[0], name != "rstrip", name != "lstrip");
  if (name == "startswith" || name == "endswith")
    return has_affix(text, arguments({"prefix"})[0], name == "endswith");
  if (name == "split" || name == "rsplit") {
    const auto a = arguments({"sep", "maxsplit"});
    const bool right = name == "rsplit";
    run.spend(text.size() * 3);  // parts are values
    auto parts = a[0].is_undefined() || a[0].is_none()
                     ? words(text, split_limit(a[1]), right)
                     : split(text, text_of(a[0]), split_limit(a[1]), right);
    Value list = Value::list(std::move(parts));
    run.spend(list.weight());
    return list;
  }
  if (name == "splitlines") return Value::list(lines(text, arguments({"keepends"})[0].is_true()));
  if (name == "replace") {
    const auto a = arguments({"old", "new", "count"});
    return replaced(run, text, text_of(a[0]), text_of(a[1]), integer_of(a[2], -1));
  }
  if (name == "upper" || name == "lower") return in_case(text, name == "upper");
  if (name == "capitalize") return capitalized_text(text);
  if (name == "title") return words_capitalized(text);
  if (name == "find" || name == "rfind")
    return found_at(text, text_of(arguments({"sub"})[0]), name == "rfind");
  if (name == "count")
    return split(text, text_of(arguments({"sub"})[0]), INT64_MAX, false).size() - 1;
  if (name == "join") {
    std::string whole;
    bool first = true;
    for (const Value& each : items_of(arguments({"iterable"})[0])) {
      run.spend(text.size() + each.weight());
      if (!std::exchange(first, false)) whole += text;
      whole += text_of(each);
    }
    return whole;
  }
  if (name == "format") return formatted(run, text, given);
  if (name == "removeprefix") {
    const std::string part = text_of(arguments({"prefix"})[0]);
    return text.starts_with(part) ? text.substr(part.size()) : text;
  }
  if (name == "removesuffix") {
    const std::string part = text_of(arguments({"suffix"})[0]);
    return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
  }
  refuse_value(fmt::format("the method '{}' is not supported", name));
}

Value dict_method(TemplateRun& run, const Value& self, const std::string& name,
                  const TemplateArguments& given) {
  const auto& dict = *self.dict();
  if (name == "get") {
    const auto a = bound(name, given, {"key", "default"});
    const Value* found = dict.find(a[0]);
    if (found != nullptr) return *found;
    return given.positional.size() > 1 ? a[1] : Value(nullptr);
  }
  run.spend(dict.items.size() * 64);
  if (name == "copy") return self;
  TemplateValues list;
  for (const auto& [key, value] : dict.items)
    list.push_back(name == "items"  ? Value::list({key, value}, /*tuple=*/true)
                   : name == "keys" ? key
                                    : value);
  if (name == "items" || name == "keys" || name == "values")
    return Value::iterable("dict_" + name, std::move(list));
  refuse_value(fmt::format("'{}' would change a mapping, which templates must not", name));
}

Value range(TemplateRun& run, const TemplateArguments& given) {
  const auto a = bound("range", given, {"start", "stop", "step"});
  const bool one = a[1].is_undefined();
  const int64_t start = one ? 0 : integer_of(a[0], 0), stop = integer_of(one ? a[0] : a[1], 0);
  const int64_t step = integer_of(a[2], 1);
  constexpr int64_t kMost = 100'000;  // as in the sandbox
  if (step == 0) refuse_value("range() arg 3 must not be zero");
  TemplateValues list;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    list.emplace_back(at);
    if (std::ssize(list) > kMost)
      refuse_value(fmt::format("range() of more than {} numbers is not supported", kMost));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  run.spend(list.size() * 32);
  return Value::iterable("range", std::move(list),
                         step == 1 ? fmt::format("range({}, {})", start, stop)
                                   : fmt::format("range({}, {}, {})", start, stop, step));
}

}  // namespace

Value called_function(TemplateRun& run, const std::string& name, const TemplateArguments& given) {
  if (name == "raise_exception") {
    const Value message = bound(name, given, {"message"})[0];
    throw UserError("the chat template refuses it: " + shown(printed(message)));
  }
  if (name == "strftime_now")
    return time_text(run.now(), text_of(bound(name, given, {"format"})[0]));
  if (name == "range") return range(run, given);
  if (name != "dict" && name != "namespace")
    refuse_value(fmt::format("'{}' is not supported", name));
  std::vector<std::pair<Value, Value>> items;
  if (given.positional.size() > 1) refuse_value(name + "() takes one mapping");
  if (!given.positional.empty()) {
    const Value& from = given.positional[0];
    if (from.dict() != nullptr) {
      items = from.dict()->items;
    } else {
      for (const Value& each : items_of(from)) {
        const auto pair = items_of(each);
        if (pair.size() != 2) refuse_value(name + "() takes pairs");
        items.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [key, value] : given.named) items.emplace_back(key, value);
  Value dict = Value::dict(std::move(items));
  run.spend(dict.weight());
  if (name == "dict") return dict;
  auto space = std::make_shared<Value::Namespace>();
  for (const auto& [key, value] : dict.dict()->items) {
    if (value.depth() >= kDeepestTemplateValue / 2)
      refuse_value("a namespace within a namespace is not supported");
    space->members[text_of(key)] = value;
  }
  return space;
}

Value called_method(TemplateRun& run, const Value& self, const std::string& name,
                    const TemplateArguments& given) {
  if (self.is_text()) {
    run.spend(self.weight());
    Value made = text_method(run, *self.text(), name, given);
    run.spend(made.is_text() ? made.weight() : 32);
    return made;
  }
  if (self.dict() != nullptr) return dict_method(run, self, name, given);
  if (self.list() != nullptr && name == "copy") return self;
  if (self.list() != nullptr)
    refuse_value(fmt::format("'{}' would change a list, which templates must not", name));
  if (name == "cycle" && !given.positional.empty())
    return given.positional[self.loop()->at % given.positional.size()];
  refuse_value(fmt::format("loop.{} is not supported", name));
}

Value attribute(TemplateRun&, const Value& value, const std::string& name) {
  if (const auto* space = value.name_space()) {
    const auto found = space->members.find(name);
    return found == space->members.end() ? Value() : found->second;
  }
  if (value.loop() != nullptr) return loop_member(value, name);
  if (value.is_text() && is_in(kTextMethods, name)) return method(value, name);
  if (value.list() != nullptr && value.list()->type.empty() && is_in(kListMethods, name))
    return method(value, name);
  if (value.dict() == nullptr) return {};
  if (is_in(kDictMethods, name)) return method(value, name);
  const Value* found = value.dict()->find(name);
  return found == nullptr ? Value() : *found;
}

}  // namespace ddp::train
