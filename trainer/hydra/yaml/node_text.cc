#include "trainer/hydra/yaml/node_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

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

}  // namespace

std::string node_to_json(const Node& node) {
  return to_json(node).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddp::train
