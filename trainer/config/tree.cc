#include "trainer/config/tree.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "trainer/config/python_number.h"

namespace ddp::train {
namespace {

Node with_kind(Kind kind) {
  Node node;
  node.kind = kind;
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
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || c == '\r') {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == quote || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + quote;
}

std::string list_str(const Node& node) {
  std::string out = "[";
  for (const Node& item : node.items) {
    if (out.size() > 1) out += ", ";
    out += quoted(item);
  }
  return out + "]";
}

std::string map_str(const Node& node) {
  std::string out = "{";
  for (const Entry& entry : node.entries) {
    if (out.size() > 1) out += ", ";
    out += quoted(entry.key) + ": " + quoted(entry.value);
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
      return a.integer == b.integer;
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
