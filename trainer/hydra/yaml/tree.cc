#include "trainer/hydra/yaml/tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/hydra/yaml/python_number.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr std::string_view kCommandLine = "command line: ";

template <class T>
Node with(Kind kind, T Node::*member, T value) {
  Node node;
  node.kind = kind;
  node.*member = std::move(value);
  return node;
}

/// 'x', or "it's"; only what would break the line or the quotes is escaped.
std::string quoted(const Node& node) {
  if (node.kind != Kind::kString) return python_str(node);
  const std::string& text = node.text;
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    out += c;
  }
  return one_line(out + quote);
}

std::string container_str(const Node& node) {
  std::vector<std::string> parts;
  for (const Node& item : node.items) parts.push_back(quoted(item));
  for (const Entry& entry : node.entries)
    parts.push_back(quoted(entry.key) + ": " + quoted(entry.value));
  const bool list = node.kind == Kind::kList;
  return fmt::format("{}{}{}", list ? "[" : "{", fmt::join(parts, ", "), list ? "]" : "}");
}

bool same_entry(const Entry& a, const Entry& b) {
  return same_value(a.key, b.key) && same_value(a.value, b.value);
}

}  // namespace

Place Place::of_override(const std::string& text) {
  return {std::make_shared<const std::string>(std::string(kCommandLine) + text), 0, 0};
}

std::string Place::str() const {
  if (!source) return "";
  if (line == 0) return *source;
  return *source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

void fail_with(const Place& place, const std::string& text) {
  const std::string where = place.str();
  if (where.empty()) throw UserError(text);
  const std::string key = text.substr(0, text.find(": "));
  const std::size_t end = where.find(key + "=");
  const bool in_override = place.line == 0 && end != std::string::npos &&
                           where.find_first_not_of('+', kCommandLine.size()) == end;
  throw UserError(where + ": " + (in_override ? text.substr(key.size() + 2) : text));
}

Node Node::null() { return {}; }
Node Node::of(bool value) { return with(Kind::kBool, &Node::boolean, value); }
Node Node::of(int64_t value) { return with(Kind::kInt, &Node::integer, value); }
Node Node::of(double value) { return with(Kind::kFloat, &Node::real, value); }
Node Node::of(std::string value) { return with(Kind::kString, &Node::text, std::move(value)); }
Node Node::list() { return with(Kind::kList, &Node::items, {}); }
Node Node::map() { return with(Kind::kMap, &Node::entries, {}); }

Node Node::texts(const std::vector<std::string>& values) {
  Node node = list();
  for (const std::string& value : values) node.items.push_back(of(value));
  return node;
}

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

Node* Node::child(std::string_view name) {
  if (kind != Kind::kList) return find(name);
  const auto index = whole_number<std::size_t>(name);
  return index && *index < items.size() ? &items[*index] : nullptr;
}

std::vector<std::string> Node::key_texts() const {
  std::vector<std::string> texts;
  for (const Entry& entry : entries) texts.push_back(python_str(entry.key));
  return texts;
}

Node without_key(Node map, std::string_view key) {
  std::erase_if(map.entries, [key](const Entry& entry) { return entry.key.text == key; });
  return map;
}

Node only_key(const Node& map, std::string_view key) {
  Node out = Node::map();
  set_entry(out, Node::of(std::string(key)), *map.find(key));
  return out;
}

bool same_value(const Node& a, const Node& b) {
  const bool same_real = a.real == b.real || (std::isnan(a.real) && std::isnan(b.real));
  return a.kind == b.kind && a.boolean == b.boolean && a.integer == b.integer && same_real &&
         a.text == b.text &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value) &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    same_entry);
}

bool same_key(const Node& a, const Node& b) {
  if (a.kind == Kind::kString && b.kind == Kind::kString) return a.text == b.text;
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
  std::string text = fmt::format("{}", value);
  const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string python_str(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "None";
    case Kind::kBool:
      return node.boolean ? "True" : "False";
    case Kind::kInt:
      return std::to_string(node.integer);
    case Kind::kFloat:
      return python_float(node.real);
    case Kind::kString:
      return node.text;
    case Kind::kList:
    case Kind::kMap:
      return container_str(node);
  }
  return "";
}

std::string_view python_type(const Node& node) {
  constexpr std::array<std::string_view, 7> kNames = {"NoneType", "bool", "int", "float",
                                                      "str",      "list", "dict"};
  return kNames.at(static_cast<std::size_t>(node.kind));
}

std::string joined_path(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + "." + name;
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

const Node* find_path(const Node& root, const std::string& path) {
  const Node* node = &root;
  for (const std::string& part : split_path(path)) {
    node = node->find(part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

void set_path(Node& root, const std::string& path, Node value) {
  Node* node = &root;
  for (const std::string& part : split_path(path)) {
    if (node->kind != Kind::kMap) *node = Node::map();
    Node* next = node->find(part);
    if (next == nullptr) {
      node->entries.push_back(Entry{Node::of(part), Node::null()});
      next = &node->entries.back().value;
    }
    node = next;
  }
  *node = std::move(value);
}

}  // namespace ddp::train
