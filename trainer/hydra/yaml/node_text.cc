#include "trainer/hydra/yaml/node_text.h"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/hydra/yaml/yaml_scalar.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

std::string json_key(const Node& key) {
  if (key.kind == Kind::kBool) return key.boolean ? "true" : "false";
  if (key.kind != Kind::kFloat || std::isfinite(key.real)) return python_str(key);
  return std::isnan(key.real) ? "NaN" : key.real < 0 ? "-Infinity" : "Infinity";
}

Json to_json(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBool:
      return node.boolean;
    case Kind::kInt:
      return node.integer;
    case Kind::kFloat:
      if (std::isfinite(node.real)) return node.real;
      return {{"$float", python_float(node.real)}};
    case Kind::kString:
      return node.text;
    case Kind::kList: {
      Json list = Json::array();
      for (const Node& item : node.items) list.push_back(to_json(item));
      return list;
    }
    case Kind::kMap: {
      Json map = Json::object();
      for (const Entry& entry : node.entries) map[json_key(entry.key)] = to_json(entry.value);
      return map;
    }
  }
  return nullptr;
}

/// Next line, line separator, paragraph separator: line breaks to YAML 1.1, so escaped here.
std::string with_escaped_breaks(std::string text) {
  for (const auto& [raw, escaped] :
       {std::pair{"\xc2\x85", "\\x85"}, std::pair{"\xe2\x80\xa8", "\\L"},
        std::pair{"\xe2\x80\xa9", "\\P"}}) {
    for (std::size_t at = 0; (at = text.find(raw, at)) != std::string::npos; at += 2)
      text.replace(at, std::string_view(raw).size(), escaped);
  }
  return text;
}

/// In quotes where YAML would read something else, or nothing.
void write_text(const std::string& text, YAML::Emitter& out) {
  const auto read_back = plain_scalar(text);
  const bool text_as_is = read_back && read_back->kind == Kind::kString;
  const bool special = text == "<<" || text == "=" || text.starts_with("---") ||
                       text.starts_with("...") || text.find('\r') != std::string::npos ||
                       with_escaped_breaks(text) != text;
  if (text_as_is && !special) {
    out << text;  // still in quotes where it breaks YAML's grammar
  } else {
    out << YAML::DoubleQuoted << text;
  }
}

void write_float(double value, YAML::Emitter& out) {
  if (std::isfinite(value)) {
    out << python_float(value);
  } else {
    out << (std::isnan(value) ? ".nan" : value < 0 ? "-.inf" : ".inf");
  }
}

void write(const Node& node, YAML::Emitter& out) {
  switch (node.kind) {
    case Kind::kNull:
      out << YAML::Null;
      return;
    case Kind::kString:
      return write_text(node.text, out);
    case Kind::kFloat:
      return write_float(node.real, out);
    case Kind::kBool:
      out << node.boolean;
      return;
    case Kind::kInt:
      out << node.integer;
      return;
    case Kind::kList:
      out << YAML::BeginSeq;
      for (const Node& item : node.items) write(item, out);
      out << YAML::EndSeq;
      return;
    case Kind::kMap:
      out << YAML::BeginMap;
      for (const Entry& entry : node.entries) {
        out << YAML::Key;
        write(entry.key, out);
        out << YAML::Value;
        write(entry.value, out);
      }
      out << YAML::EndMap;
      return;
  }
}

}  // namespace

std::string node_to_json(const Node& node) {
  return to_json(node).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string node_to_yaml(const Node& node) {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  write(node, out);
  return with_escaped_breaks({out.c_str(), out.size()}) + "\n";
}

}  // namespace ddp::train
