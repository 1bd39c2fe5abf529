#include "trainer/config/node_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/config/yaml_scalar.h"

namespace ddp::train {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_float(double value) {
  if (std::isfinite(value)) return python_float(value);
  return "{\"$float\": \"" + python_float(value) + "\"}";
}

std::string json_key(const Node& key) {
  if (key.kind == Kind::kBool) return key.boolean ? "\"true\"" : "\"false\"";
  if (key.kind == Kind::kNull) return "\"null\"";
  // As Python's json writes them.
  if (key.kind == Kind::kFloat && std::isnan(key.real)) return "\"NaN\"";
  if (key.kind == Kind::kFloat && std::isinf(key.real))
    return key.real < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  return quoted(python_str(key));
}

bool plain_is_safe(const std::string& text) {
  if (text.empty() || type_plain_scalar(text).kind != Kind::kString) return false;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string("-?:,[]{}#&*!|>'\"%@`=<").find(text.front()) != std::string::npos) return false;
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos) return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

std::string yaml_float(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  return python_float(value);
}

std::string yaml_scalar(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return node.boolean ? "true" : "false";
    case Kind::kFloat:
      return yaml_float(node.real);
    case Kind::kString:
      return plain_is_safe(node.text) ? node.text : quoted(node.text);
    default:
      return python_str(node);
  }
}

void write_yaml(const Node& node, std::size_t indent, std::string& out);

void write_yaml_value(const Node& value, std::size_t indent, std::string& out) {
  if (value.kind == Kind::kMap && !value.entries.empty()) {
    out += "\n";
    write_yaml(value, indent + 2, out);
  } else if (value.kind == Kind::kList && !value.items.empty()) {
    out += "\n";
    write_yaml(value, indent, out);
  } else {
    out += " ";
    write_yaml(value, indent, out);
    out += "\n";
  }
}

void write_yaml(const Node& node, std::size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  if (node.kind == Kind::kMap && node.entries.empty()) out += "{}";
  if (node.kind == Kind::kList && node.items.empty()) out += "[]";
  for (const Entry& entry : node.entries) {
    out += margin + yaml_scalar(entry.key) + ":";
    write_yaml_value(entry.value, indent, out);
  }
  for (const Node& item : node.items) {
    const bool nested = (item.kind == Kind::kMap && !item.entries.empty()) ||
                        (item.kind == Kind::kList && !item.items.empty());
    if (nested) {
      std::string inner;
      write_yaml(item, indent + 2, inner);
      out += margin + "- " + inner.substr(indent + 2);
    } else {
      out += margin + "- ";
      write_yaml(item, indent, out);
      out += "\n";
    }
  }
  if (!node.is_container()) out += yaml_scalar(node);
}

}  // namespace

std::string node_to_json(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return node.boolean ? "true" : "false";
    case Kind::kInt:
      return python_str(node);
    case Kind::kFloat:
      return json_float(node.real);
    case Kind::kString:
      return quoted(node.text);
    case Kind::kList:
      for (const Node& item : node.items) out += (out.empty() ? "" : ", ") + node_to_json(item);
      return "[" + out + "]";
    case Kind::kMap:
      for (const Entry& entry : node.entries) {
        out += (out.empty() ? "" : ", ") + json_key(entry.key) + ": " + node_to_json(entry.value);
      }
      return "{" + out + "}";
  }
  return out;
}

std::string node_to_yaml(const Node& node) {
  std::string out;
  write_yaml(node, 0, out);
  if (out.empty() || out.back() != '\n') out += "\n";
  return out;
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
