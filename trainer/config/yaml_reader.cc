#include "trainer/config/yaml_reader.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "trainer/config/message.h"
#include "trainer/config/yaml_graph.h"
#include "trainer/config/yaml_scalar.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostNodes = 200'000;  // after aliases are copied ("billion laughs")
constexpr int kDeepest = 200;

bool has_tag(const YamlNode& node, std::string_view name) {
  return node.tag.size() == kYamlTag.size() + name.size() && node.tag.starts_with(kYamlTag) &&
         node.tag.ends_with(name);
}

std::string_view kind_name(const YamlNode& node) {
  switch (node.kind) {
    case YamlKind::kScalar:
      return "scalar";
    case YamlKind::kSequence:
      return "sequence";
    case YamlKind::kMapping:
      return "mapping";
  }
  return "";
}

[[noreturn]] void fail_constructor(const YamlNode& node) {
  throw YamlError(node.mark,
                  fmt::format("could not determine a constructor for the tag '{}'", node.tag),
                  "remove it, or put the text into quotes");
}

/// What PyYAML's constructor does to the graph before there are values: it merges <<, finds keys
/// that are given twice, and looks at each node once, the outer ones first.
class Preparer {
 public:
  void run(YamlNode* root) {
    visit(root);
    for (; !queue_.empty(); queue_.pop_front()) {
      YamlNode* node = queue_.front();
      if (node->kind == YamlKind::kMapping) {
        prepare_mapping(*node);
      } else {
        for (YamlNode* item : node->items) visit(item);
      }
    }
  }

 private:
  void visit(YamlNode* node) {
    if (!seen_.insert(node).second) return;
    const bool map = has_tag(*node, "map");
    const bool list = has_tag(*node, "seq") || has_tag(*node, "omap") || has_tag(*node, "pairs");
    if (map && node->kind != YamlKind::kMapping) fail_kind(*node, "mapping");
    if (list && node->kind != YamlKind::kSequence) fail_kind(*node, "sequence");
    if (has_tag(*node, "omap") || has_tag(*node, "pairs")) check_pairs(*node);
    if (map || list) queue_.push_back(node);
    const bool known = map || list || has_tag(*node, "str") || has_tag(*node, "int") ||
                       has_tag(*node, "float") || has_tag(*node, "bool") || has_tag(*node, "null");
    if (!known) fail_constructor(*node);
  }

  [[noreturn]] static void fail_kind(const YamlNode& node, std::string_view wanted) {
    throw YamlError(node.mark,
                    fmt::format("expected a {} node, but found {}", wanted, kind_name(node)),
                    "remove the tag");
  }

  static void check_pairs(const YamlNode& node) {
    for (const YamlNode* item : node.items) {
      if (item->kind != YamlKind::kMapping || item->pairs.size() != 1)
        throw YamlError(item->mark, "expected a single mapping item", "write - key: value");
    }
  }

  void prepare_mapping(YamlNode& map) {
    std::map<std::string, int> lines;
    for (const auto& [key, value] : map.pairs) {
      if (!has_tag(*key, "str")) continue;
      const auto [first, added] = lines.emplace(key->text, key->mark.line + 1);
      if (added) continue;
      throw YamlError(key->mark, fmt::format("found duplicate key '{}'", shown(key->text)),
                      fmt::format("first given at line {}, keep one of them", first->second));
    }
    flatten(map);
    for (const auto& [key, value] : map.pairs) {
      check_key(*key);
      visit(key);
      visit(value);
    }
  }

  static void check_key(const YamlNode& key) {
    const bool text_of_map = has_tag(key, "int") || has_tag(key, "float") || has_tag(key, "bool");
    if (key.kind != YamlKind::kScalar && !text_of_map)
      throw YamlError(key.mark, "found unhashable key: a list or map", "keys are plain words");
    if (has_tag(key, "null")) throw YamlError(key.mark, "null as a key", "put it into quotes");
  }

  /// << brings the entries of other maps, in front of the map's own; = is a text as a key.
  void flatten(YamlNode& map) {
    if (++depth_ > kDeepest) throw YamlError(map.mark, "a << that merges itself", "remove it");
    std::vector<std::pair<YamlNode*, YamlNode*>> merged;
    for (std::size_t i = 0; i < map.pairs.size();) {
      const auto [key, value] = map.pairs[i];
      if (has_tag(*key, "value")) key->tag = std::string(kYamlTag) + "str";
      if (!has_tag(*key, "merge")) {
        ++i;
        continue;
      }
      map.pairs.erase(map.pairs.begin() + static_cast<std::ptrdiff_t>(i));
      add_merged(*key, *value, merged);
    }
    map.pairs.insert(map.pairs.begin(), merged.begin(), merged.end());
    if (map.pairs.size() > kMostNodes)
      throw YamlError(map.mark, "aliases make this file too large");
    --depth_;
  }

  void add_merged(const YamlNode& key, YamlNode& value,
                  std::vector<std::pair<YamlNode*, YamlNode*>>& merged) {
    if (value.kind == YamlKind::kMapping) {
      flatten(value);
      merged.insert(merged.end(), value.pairs.begin(), value.pairs.end());
      return;
    }
    if (value.kind == YamlKind::kScalar)
      throw YamlError(key.mark, "expected a mapping or list of mappings for merging");
    for (YamlNode* item : value.items) {
      if (item->kind != YamlKind::kMapping)
        throw YamlError(item->mark, "expected a mapping for merging");
      flatten(*item);
    }
    for (std::size_t i = value.items.size(); i > 0; --i) {  // the first wins
      const auto& pairs = value.items[i - 1]->pairs;
      merged.insert(merged.end(), pairs.begin(), pairs.end());
    }
  }

  std::set<const YamlNode*> seen_;
  std::deque<YamlNode*> queue_;
  int depth_ = 0;
};

/// The prepared graph -> values; what aliases name is copied.
class Builder {
 public:
  explicit Builder(std::shared_ptr<const std::string> source) : source_(std::move(source)) {}

  Node build(const YamlNode& from) {
    if (++nodes_ > kMostNodes) throw YamlError(from.mark, "aliases make this file too large");
    if (++depth_ > kDeepest) throw YamlError(from.mark, "nested too deeply");
    if (!open_.insert(&from).second)
      throw YamlError(from.mark, "an alias inside its own anchor; a value cannot contain itself");
    Node node = value_of(from);
    node.place = {source_, from.mark.line + 1, from.mark.column + 1};
    open_.erase(&from);
    --depth_;
    return node;
  }

 private:
  Node value_of(const YamlNode& from) {
    if (has_tag(from, "map")) return map_of(from);
    if (has_tag(from, "seq")) return list_of(from);
    if (has_tag(from, "omap") || has_tag(from, "pairs")) return pairs_of(from);
    const std::string& text = scalar_text(from, 0);
    std::optional<Node> node;
    if (has_tag(from, "str")) node = Node::of(text);
    if (has_tag(from, "null")) node = Node::null();
    if (has_tag(from, "int")) node = yaml_int(text);
    if (has_tag(from, "float")) node = yaml_float(text);
    if (has_tag(from, "bool")) node = yaml_bool(text);
    if (!node) {
      throw YamlError(from.mark,
                      fmt::format("'{}' is no {}", shown(text), from.tag.substr(kYamlTag.size())),
                      "put it into quotes for a text");
    }
    return *node;
  }

  /// A map may stand for a text: the value of its key "=".
  static const std::string& scalar_text(const YamlNode& from, int depth) {
    if (from.kind == YamlKind::kScalar) return from.text;
    for (const auto& [key, value] : from.pairs) {
      if (has_tag(*key, "value") && depth < kDeepest) return scalar_text(*value, depth + 1);
    }
    throw YamlError(from.mark, fmt::format("expected a scalar node, but found {}", kind_name(from)),
                    "remove the tag");
  }

  Node list_of(const YamlNode& from) {
    Node list = Node::list();
    for (const YamlNode* item : from.items) list.items.push_back(build(*item));
    return list;
  }

  Node map_of(const YamlNode& from) {
    Node map = Node::map();
    for (const auto& [key, value] : from.pairs) set_entry(map, build(*key), build(*value));
    return map;
  }

  /// !!omap and !!pairs: a list of lists of two.
  Node pairs_of(const YamlNode& from) {
    Node list = Node::list();
    for (const YamlNode* item : from.items) {
      Node pair = Node::list();
      pair.items.push_back(build(*item->pairs.front().first));
      pair.items.push_back(build(*item->pairs.front().second));
      list.items.push_back(std::move(pair));
    }
    return list;
  }

  std::shared_ptr<const std::string> source_;
  std::set<const YamlNode*> open_;
  std::size_t nodes_ = 0;
  int depth_ = 0;
};

}  // namespace

Node read_yaml(const std::string& text, const std::string& source) {
  try {
    YamlGraph graph = compose_yaml(decode_yaml(text));
    if (graph.root == nullptr) return {};
    Preparer().run(graph.root);
    return Builder(std::make_shared<const std::string>(source)).build(*graph.root);
  } catch (const YamlError& e) {
    throw UserError(fmt::format("{}:{}:{}: not valid YAML: {}{}{}", source, e.mark.line + 1,
                                e.mark.column + 1, e.what(), e.fix.empty() ? "" : "; ", e.fix));
  }
}

Node read_yaml_container(const std::string& text, const std::string& source) {
  Node root = read_yaml(text, source);
  if (root.kind == Kind::kNull) return Node::map();
  if (root.kind != Kind::kString) return root;
  Node map = Node::map();
  map.place = root.place;
  map.entries.push_back(Entry{std::move(root), Node::null()});
  return map;
}

}  // namespace ddp::train
