#include "trainer/config/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "trainer/config/python_number.h"
#include "trainer/config/yaml_text.h"

namespace ddp::train {
namespace {

Node with_kind(Kind kind) {
  Node node;
  node.kind = kind;
  return node;
}

/// str.isprintable() of an assigned character.
bool is_printable(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 28> kHidden = {
      {{0x0, 0x1f},        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
       {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
       {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
       {0x2028, 0x202f},   {0x205f, 0x2064},   {0x2066, 0x206f},   {0x3000, 0x3000},
       {0xd800, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
       {0x110cd, 0x110cd}, {0x13430, 0x13438}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
       {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffd}, {0x100000, 0x10ffff}}};
  return std::none_of(kHidden.begin(), kHidden.end(),
                      [c](const auto& range) { return c >= range.first && c <= range.second; });
}

std::string escaped(char32_t c) {
  if (c == U'\n') return "\\n";
  if (c == U'\t') return "\\t";
  if (c == U'\r') return "\\r";
  const auto code = static_cast<unsigned>(c);
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

std::string python_repr(const Node& node) {
  if (node.kind != Kind::kString) return python_str(node);
  const char quote =
      node.text.find('\'') != std::string::npos && node.text.find('"') == std::string::npos ? '"'
                                                                                            : '\'';
  std::string out(1, quote);
  for (const char32_t c : utf8_characters(node.text)) {
    if (c == static_cast<char32_t>(quote) || c == U'\\') out += '\\';
    if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      out += escaped(c);
    }
  }
  return out + quote;
}

std::string list_str(const Node& node) {
  std::string out = "[";
  for (const Node& item : node.items) {
    if (out.size() > 1) out += ", ";
    out += python_repr(item);
  }
  return out + "]";
}

std::string map_str(const Node& node) {
  std::string out = "{";
  for (const Entry& entry : node.entries) {
    if (out.size() > 1) out += ", ";
    out += python_repr(entry.key) + ": " + python_repr(entry.value);
  }
  return out + "}";
}

bool same_items(const Node& a, const Node& b) {
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!same_value(a.items[i], b.items[i])) return false;
  }
  return true;
}

bool same_entries(const Node& a, const Node& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    if (!same_value(a.entries[i].key, b.entries[i].key)) return false;
    if (!same_value(a.entries[i].value, b.entries[i].value)) return false;
  }
  return true;
}

/// Digits and exponent of the shortest scientific form: 1.5e-07 -> "15", -7.
std::string shortest_digits(double value, int& exponent) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string text(buffer.data(), end.ptr);
  const std::size_t e = text.find('e');
  exponent = std::stoi(text.substr(e + 1));
  std::string digits = text.substr(0, 1);
  if (e > 2) digits += text.substr(2, e - 2);
  return digits;
}

std::string scientific(const std::string& digits, int exponent) {
  std::string out = digits;
  if (out.size() > 1) out.insert(1, 1, '.');
  out += exponent < 0 ? "e-" : "e+";
  const int magnitude = std::abs(exponent);
  if (magnitude < 10) out += '0';
  return out.append(std::to_string(magnitude));
}

std::string positional(const std::string& digits, int exponent) {
  std::string out = digits;
  if (exponent < 0) {
    out.insert(0, static_cast<std::size_t>(-exponent), '0');
    return out.insert(1, 1, '.');
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (out.size() <= whole) return out.append(whole - out.size(), '0').append(".0");
  return out.insert(whole, 1, '.');
}

}  // namespace

std::string Place::str() const {
  if (!source) return "";
  if (line == 0) return *source;
  return *source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

Node Node::null() { return {}; }

Node Node::of(bool value) {
  Node node = with_kind(Kind::kBool);
  node.boolean = value;
  return node;
}

Node Node::of(int64_t value) {
  Node node = with_kind(Kind::kInt);
  node.integer = value;
  return node;
}

Node Node::of(double value) {
  Node node = with_kind(Kind::kFloat);
  node.real = value;
  return node;
}

Node Node::of(std::string value) {
  Node node = with_kind(Kind::kString);
  node.text = std::move(value);
  return node;
}

Node Node::big_int(std::string digits) {
  Node node = with_kind(Kind::kInt);
  node.text = std::move(digits);
  return node;
}

Node Node::list() { return with_kind(Kind::kList); }
Node Node::map() { return with_kind(Kind::kMap); }

bool Node::is_interpolation() const {
  return kind == Kind::kString && text.find("${") != std::string::npos;
}

const Node* Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key.kind == Kind::kString && entry.key.text == key) return &entry.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(static_cast<const Node*>(this)->find(key));
}

bool same_value(const Node& a, const Node& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kInt:
      return a.integer == b.integer && a.text == b.text;
    case Kind::kFloat:
      return a.real == b.real || (std::isnan(a.real) && std::isnan(b.real));
    case Kind::kString:
      return a.text == b.text;
    case Kind::kList:
      return same_items(a, b);
    case Kind::kMap:
      return same_entries(a, b);
  }
  return false;
}

bool same_key(const Node& a, const Node& b) {
  if (a.kind == b.kind || !is_number(a) || !is_number(b)) return same_value(a, b);
  return compare_numbers(a, b) == 0;
}

void set_entry(Node& map, Node key, Node value) {
  for (Entry& entry : map.entries) {
    if (same_key(entry.key, key)) {
      entry.value = std::move(value);
      return;
    }
  }
  map.entries.push_back(Entry{std::move(key), std::move(value)});
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  int exponent = 0;
  const std::string digits = shortest_digits(std::fabs(value), exponent);
  std::string out;
  if (value < 0) out += '-';
  return out.append(exponent < -4 || exponent >= 16 ? scientific(digits, exponent)
                                                    : positional(digits, exponent));
}

std::string python_str(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "None";
    case Kind::kBool:
      return node.boolean ? "True" : "False";
    case Kind::kInt:
      return node.text.empty() ? std::to_string(node.integer) : node.text;
    case Kind::kFloat:
      return python_float(node.real);
    case Kind::kString:
      return node.text;
    case Kind::kList:
      return list_str(node);
    case Kind::kMap:
      return map_str(node);
  }
  return "";
}

std::string_view python_type(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kMap:
      return "dict";
  }
  return "";
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t dot = path.find('.', begin);
    parts.emplace_back(path.substr(begin, dot == std::string_view::npos ? dot : dot - begin));
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

}  // namespace ddp::train
