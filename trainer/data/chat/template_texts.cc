// Python's texts: cases, white space, replacements.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/tokenizer/letter_case.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;

/// str.strip() of Python: Unicode's white space and four control characters.
std::string_view stripped_of_space(std::string_view whole, bool left, bool right) {
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
  return whole;
}

}  // namespace

std::string capitalized_text(const std::string& text) {
  if (text.empty()) return text;
  const std::string_view first = characters(std::string_view(text).substr(0, 4)).front();
  return capitalized(std::string(first)) + in_case(text.substr(first.size()), false);
}

std::string titled_text(const std::string& text) {
  constexpr std::string_view kBefore = " \t\n\r\f\v-({[<";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool gap = kBefore.find(text[at]) != std::string_view::npos;
    const std::size_t end = gap ? std::min(text.find_first_not_of(kBefore, at), text.size())
                                : std::min(text.find_first_of(kBefore, at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::string first(characters(std::string_view(part).substr(0, 4)).front());
    out += gap ? part : in_case(first, true) + in_case(part.substr(first.size()), false);
    at = end;
  }
  return out;
}

std::string words_capitalized(const std::string& text) {
  std::string out;
  bool in_word = false;
  for (const std::string_view each : characters(text)) {
    const std::string letter(each);
    const std::string lower = in_case(letter, false);
    out += in_word ? lower : capitalized(letter);
    in_word = lower != letter || in_case(letter, true) != letter;
  }
  return out;
}

std::string stripped(const std::string& text, const Value& given, bool left, bool right) {
  if (given.is_undefined() || given.is_none())
    return std::string(stripped_of_space(text, left, right));
  const auto listed = characters(text_of(given));
  const std::set<std::string_view> unwanted(listed.begin(), listed.end());
  const auto all = characters(text);
  const auto is_unwanted = [&](std::string_view each) { return unwanted.contains(each); };
  auto begin = all.begin(), end = all.end();
  while (left && begin != end && is_unwanted(*begin)) ++begin;
  while (right && begin != end && is_unwanted(*(end - 1))) --end;
  return begin == end ? "" : std::string(begin->data(), (end - 1)->data() + (end - 1)->size());
}

std::string replaced(TemplateRun& run, const std::string& text, const std::string& from,
                     const std::string& to, int64_t count) {
  if (count < 0) count = INT64_MAX;
  std::string out;
  std::size_t at = 0;
  const auto add = [&](std::string_view part) {
    run.spend(part.size());
    out += part;
  };
  if (from.empty()) {  // around each character
    for (const std::string_view each : characters(text)) {
      if (count-- != 0)
        add(to);
      else
        ++count;
      add(each);
    }
    if (count != 0) add(to);
    return out;
  }
  for (std::size_t next = text.find(from); next != std::string::npos && count-- != 0;
       next = text.find(from, at)) {
    add(std::string_view(text).substr(at, next - at));
    add(to);
    at = next + from.size();
  }
  add(std::string_view(text).substr(at));
  return out;
}

TemplateValues bound(const std::string& callee, const TemplateArguments& arguments,
                     std::initializer_list<std::string_view> parameters) {
  TemplateValues values(parameters.size());
  if (arguments.positional.size() > parameters.size())
    refuse_value(fmt::format("{} takes at most {} arguments", callee, parameters.size()));
  std::copy(arguments.positional.begin(), arguments.positional.end(), values.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end())
      refuse_value(fmt::format("{} has no argument '{:.80}'", callee, name));
    values[static_cast<std::size_t>(found - parameters.begin())] = value;
  }
  return values;
}

const std::string& text_of(const Value& value) {
  if (!value.is_text()) refuse_value(fmt::format("a text is expected, not {}", value.type_name()));
  return *value.text();
}

int64_t integer_of(const Value& value, int64_t otherwise) {
  if (value.is_undefined() || value.is_none()) return otherwise;
  if (!value.is_integer())
    refuse_value(fmt::format("an integer is expected, not {}", value.type_name()));
  return value.integer();
}

std::string indented(TemplateRun& run, const std::string& text, const std::string& margin,
                     bool first, bool empty) {
  std::string out = first ? margin : "";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (at > 0 && (end != at || empty)) {
      run.spend(margin.size());
      out += margin;
    }
    out += text.substr(at, end == std::string::npos ? end : end + 1 - at);
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return out;
}

std::string time_text(std::time_t now, const std::string& format) {
  std::tm local{};
  ::localtime_r(&now, &local);
  if (format.size() > 1000) refuse_value("a format of dates has at most 1000 bytes");
  std::string text(format.size() * 100 + 1, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

}  // namespace ddp::train
