// configs/schema.json, made from the list of fields.
#include <nlohmann/json.hpp>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/show/key_reference.h"

#include <cmath>

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

/// ${...} and ??? may replace a value of any type.
Json or_later(Json type) {
  return {{"anyOf", Json::array({std::move(type),
                                 Json{{"type", "string"}, {"pattern", "\\$\\{|^\\?\\?\\?$"}}})}};
}

Json number_schema(const Field& field, const char* type) {
  Json out = {{"type", type}};
  if (std::isfinite(field.range.low))
    out[field.range.low_open ? "exclusiveMinimum" : "minimum"] = field.range.low;
  if (std::isfinite(field.range.high))
    out[field.range.high_open ? "exclusiveMaximum" : "maximum"] = field.range.high;
  return out;
}

/// The entries of param_groups.
Json group_schema() {
  const Json text = {{"type", "string"}};
  const Json texts = {{"type", "array"}, {"items", text}, {"minItems", 1}};
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", {"pattern"}},
          {"properties",
           {{"pattern", {{"anyOf", Json::array({text, texts})}}},
            {"lr_mult", {{"type", "number"}, {"exclusiveMinimum", 0}}},
            {"weight_decay", {{"type", "number"}, {"minimum", 0}}},
            {"optimizer", {{"enum", {"muon", "adamw"}}}},
            {"frozen", {{"type", "boolean"}}}}}};
}

/// The entries of sources.
Json source_schema() {
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", {"path"}},
          {"properties",
           {{"path", {{"type", "string"}}}, {"weight", {{"type", "number"}, {"minimum", 0}}}}}};
}

Json base_type(const Field& field) {
  const std::string type = field_type(field);
  if (type == "int" || type == "int or null") return number_schema(field, "integer");
  if (type == "float") return number_schema(field, "number");
  if (type == "bool") return {{"type", "boolean"}};
  if (type == "str") return {{"type", "string"}};
  if (type == "list of 2 floats")
    return {{"type", "array"},
            {"items", number_schema(field, "number")},
            {"minItems", 2},
            {"maxItems", 2}};
  if (type == "auto or float")
    return {{"anyOf", Json::array({Json{{"const", "auto"}}, number_schema(field, "number")})}};
  if (type == "balanced or list of floats") {
    const Json list = {{"type", "array"}, {"items", number_schema(field, "number")}};
    return {{"anyOf", Json::array({Json{{"const", "balanced"}}, list})}};
  }
  if (type == "list of sources") return {{"type", "array"}, {"items", source_schema()}};
  if (type == "map of paths")
    return {{"type", {"object", "array"}}, {"additionalProperties", {{"type", "string"}}}};
  if (type == "list of groups") return {{"type", "array"}, {"items", group_schema()}};
  if (type == "list of str") {
    const Json list = {{"type", "array"}, {"items", {{"type", "string"}}}};
    if (field.word_for_all.empty()) return list;
    return {{"anyOf", Json::array({Json{{"const", field.word_for_all}}, list})}};
  }
  if (type == "bool or list of str")
    return {{"type", Json::array({"boolean", "array", "string"})}, {"items", {{"type", "string"}}}};
  Json choices = Json::array();
  for (const std::string& name : field_choices(field)) {
    if (name == "true" || name == "false")
      choices.push_back(name == "true");
    else if (name.find_first_not_of("0123456789") == std::string::npos)
      choices.push_back(std::stoi(name));
    else
      choices.push_back(name);
  }
  return {{"enum", choices}};
}

Json field_schema(const Field& field) {
  Json base = base_type(field);
  const bool nullable = field.null_means != NullMeans::kError || field_type(field) == "int or null";
  Json out = base.contains("type") && base["type"] == "string" ? base : or_later(base);
  if (nullable && out.contains("anyOf")) out["anyOf"].push_back({{"type", "null"}});
  if (nullable && !out.contains("anyOf")) out["type"] = Json::array({"string", "null"});
  std::string text = field.meaning;
  if (!field.unit.empty()) text += " [" + field.unit + "]";
  out["description"] = text + " Default: " + field_default(field) + ".";
  return out;
}

/// The objects on the way are created. Only Hydra's blocks take further keys, which trainer checks
/// itself.
void place_field(Json& root, const Field& field) {
  std::vector<std::string> names = split_path(field.path);
  Json* object = &root;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    Json& next = (*object)["properties"][names[i]];
    if (next.is_null()) {
      next = {{"type", "object"}};
      if (names[0] != "hydra") next["additionalProperties"] = false;
      next["properties"] = Json::object();
    }
    object = &next;
  }
  (*object)["properties"][names.back()] = field_schema(field);
}

}  // namespace

std::string config_schema_json() {
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", "Configuration of trainer"},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", {{"defaults", {{"type", "array"}}}}}};
  for (const Field& field : config_fields()) place_field(root, field);
  return root.dump(2) + "\n";
}

}  // namespace ddp::train
