#include "trainer/config/node_text.h"

#include <fmt/format.h>

#include <cmath>

#include "trainer/config/yaml_scalar.h"
#include "trainer/config/yaml_text.h"

namespace ddp::train {
namespace {

std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char32_t c : utf8_characters(text)) {
    constexpr std::u32string_view kEscaped = U"\"\\\b\f\n\r\t";
    const std::size_t known = kEscaped.find(c);
    if (known != std::u32string_view::npos) {
      out += '\\';
      out += "\"\\bfnrt"[known];
    } else if (c < 0x20 || (c >= 0xd800 && c < 0xe000)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      append_utf8(out, c);
    }
  }
  return out + '"';
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
  return json_quoted(python_str(key));
}

/// Characters that YAML takes for line breaks or marks, or refuses: the two or three bytes at `at`
/// as a code point, else 0.
unsigned special_character(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  if (byte(0) == 0x7f) return 0x7f;
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return byte(1);
  const unsigned code = (byte(0) & 0x0fU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU);
  const bool three = (byte(0) & 0xf0U) == 0xe0;
  const bool special = code == 0x2028 || code == 0x2029 || code == 0xfeff || code >= 0xfffe;
  return three && special ? code : 0;
}

std::size_t special_size(unsigned code) { return code == 0x7f ? 1 : code < 0x800 ? 2 : 3; }

/// In double quotes, as YAML and JSON both read it.
std::string yaml_quoted(const std::string& text) {
  std::string out;
  std::string plain;
  const auto flush = [&] {
    const std::string part = json_quoted(plain);
    out += part.substr(1, part.size() - 2);
    plain.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const unsigned code = special_character(text, at);
    if (code == 0) {
      plain += text[at++];
      continue;
    }
    flush();
    out += fmt::format("\\u{:04x}", code);
    at += special_size(code);
  }
  flush();
  return "\"" + out + "\"";
}

bool plain_is_safe(const std::string& text) {
  if (text.empty() || type_plain_scalar(text).kind != Kind::kString) return false;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string("-?:,[]{}#&*!|>'\"%@`=<").find(text.front()) != std::string::npos) return false;
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (static_cast<unsigned char>(text[at]) < 0x20 || special_character(text, at) != 0)
      return false;
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
      return plain_is_safe(node.text) ? node.text : yaml_quoted(node.text);
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
      return json_quoted(node.text);
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
