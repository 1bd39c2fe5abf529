#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <cmath>

#include "trainer/config/yaml/node_text.h"
#include "trainer/config/yaml/yaml_scalar.h"

namespace ddp::train {
namespace {

/// In quotes where YAML would read something else, or nothing.
void write_text(const std::string& text, YAML::Emitter& out) {
  const auto read_back = plain_scalar(text);
  const bool text_as_is = read_back && read_back->kind == Kind::kString;
  const bool special = text == "<<" || text == "=" || text.starts_with("---") ||
                       text.starts_with("...") || text.find('\r') != std::string::npos;
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

std::string node_to_yaml(const Node& node) {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  write(node, out);
  return std::string(out.c_str(), out.size()) + "\n";
}

}  // namespace ddp::train
