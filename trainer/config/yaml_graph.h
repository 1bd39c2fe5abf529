// A YAML document as it is written: nodes with tags, aliases not yet copied.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/yaml_scanner.h"

namespace ddp::train {

enum class YamlKind { kScalar, kSequence, kMapping };

struct YamlNode {
  YamlKind kind = YamlKind::kScalar;
  std::string tag;                                     ///< Never "": tag:yaml.org,2002:str, ...
  std::string text;                                    ///< kScalar
  std::vector<YamlNode*> items;                        ///< kSequence
  std::vector<std::pair<YamlNode*, YamlNode*>> pairs;  ///< kMapping
  YamlMark mark;
};

/// Owns its nodes; an aliased one stands in several places.
struct YamlGraph {
  std::deque<YamlNode> nodes;
  YamlNode* root = nullptr;  ///< nullptr for a text without a document.
};

constexpr std::string_view kYamlTag = "tag:yaml.org,2002:";

/// Reads the one document of the text. Throws YamlError.
YamlGraph compose_yaml(std::u32string text);

}  // namespace ddp::train
