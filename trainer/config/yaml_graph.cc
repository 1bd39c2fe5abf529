#include "trainer/config/yaml_graph.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "trainer/config/yaml_scalar.h"

namespace ddp::train {
namespace {

using Type = YamlTokenType;

constexpr int kDeepest = 200;  // Python's stack ends at half of that

/// PyYAML's grammar by recursive descent: one function for each of its productions.
class YamlComposer {
 public:
  explicit YamlComposer(std::u32string text) : scanner_(std::move(text)) {}

  YamlGraph document() {
    if (scanner_.check({Type::kDirective, Type::kDocumentStart, Type::kStreamEnd})) {
      if (!explicit_start()) return std::move(graph_);
      const bool empty = scanner_.check(
          {Type::kDirective, Type::kDocumentStart, Type::kDocumentEnd, Type::kStreamEnd});
      graph_.root = empty ? empty_scalar(scanner_.peek().start) : node(kBlock);
    } else {
      graph_.root = node(kBlock);
    }
    while (scanner_.check({Type::kDocumentEnd})) scanner_.next();
    const YamlToken& after = scanner_.peek();
    if (after.type == Type::kDocumentStart || after.type == Type::kDirective) {
      throw YamlError(after.start,
                      "expected a single document in the stream, but found another document",
                      "remove the `---`");
    }
    if (after.type != Type::kStreamEnd)
      fail_found("expected '<document start>'", "check its indentation");
    return std::move(graph_);
  }

 private:
  /// Where a node stands decides what it may be.
  struct Room {
    bool block;
    bool indentless;  // a list as indented as the key above it
  };
  static constexpr Room kFlow{false, false};
  static constexpr Room kBlock{true, false};
  static constexpr Room kBlockValue{true, true};

  [[noreturn]] void fail_found(const std::string& expected, const std::string& fix) {
    const YamlToken& token = scanner_.peek();
    throw YamlError(token.start,
                    fmt::format("{}, but found {}", expected, yaml_token_name(token.type)), fix);
  }

  /// Directives and ---; false at the end of the text.
  bool explicit_start() {
    if (scanner_.check({Type::kStreamEnd})) return false;
    bool versioned = false;
    while (scanner_.check({Type::kDirective})) {
      const YamlToken token = scanner_.next();
      if (token.name == "YAML") {
        if (versioned) throw YamlError(token.start, "found duplicate YAML directive");
        if (token.text.find_first_not_of('0') == std::string::npos ||
            token.text.substr(token.text.find_first_not_of('0')) != "1") {
          throw YamlError(token.start,
                          "found incompatible YAML document (version 1.* is required)");
        }
        versioned = true;
      }
      if (token.name == "TAG" && !handles_.emplace(token.handle, token.text).second)
        throw YamlError(token.start, fmt::format("duplicate tag handle '{}'", token.handle));
    }
    if (!scanner_.check({Type::kDocumentStart})) fail_found("expected '<document start>'", "");
    scanner_.next();
    return true;
  }

  YamlNode* made(YamlKind kind, const YamlMark& mark) {
    YamlNode& node = graph_.nodes.emplace_back();
    node.kind = kind;
    node.mark = mark;
    return &node;
  }

  static std::string tag_name(std::string_view name) { return std::string(kYamlTag).append(name); }

  YamlNode* empty_scalar(const YamlMark& mark) {
    YamlNode* node = made(YamlKind::kScalar, mark);
    node->tag = tag_name("null");
    return node;
  }

  std::string resolved_tag(const YamlToken& token) const {
    if (token.handle.empty()) return token.text;
    const auto own = handles_.find(token.handle);
    if (own != handles_.end()) return own->second + token.text;
    if (token.handle == "!") return "!" + token.text;
    if (token.handle == "!!") return tag_name(token.text);
    throw YamlError(token.start, fmt::format("found undefined tag handle '{}'", token.handle),
                    "remove it");
  }

  struct Properties {
    std::optional<YamlToken> anchor;
    std::optional<YamlToken> tag;
  };

  /// An anchor and a tag, in any order.
  Properties properties() {
    Properties found;
    if (scanner_.check({Type::kAnchor})) found.anchor = scanner_.next();
    if (scanner_.check({Type::kTag})) found.tag = scanner_.next();
    if (!found.anchor && found.tag && scanner_.check({Type::kAnchor}))
      found.anchor = scanner_.next();
    return found;
  }

  YamlNode* node(Room room) {
    if (++depth_ > kDeepest) {
      throw YamlError(scanner_.peek().start, "nested too deeply",
                      fmt::format("at most {} levels are read", kDeepest));
    }
    YamlNode* made = scanner_.check({Type::kAlias}) ? aliased() : content(room);
    --depth_;
    return made;
  }

  YamlNode* aliased() {
    const YamlToken token = scanner_.next();
    const auto found = anchors_.find(token.text);
    if (found != anchors_.end()) return found->second;
    throw YamlError(token.start, fmt::format("found undefined alias '{}'", token.text),
                    fmt::format("write &{} before the value it stands for, above", token.text));
  }

  YamlNode* content(Room room) {
    const Properties given = properties();
    YamlMark mark = scanner_.peek().start;
    if (given.tag) mark = given.tag->start;
    if (given.anchor && (!given.tag || given.anchor->start.index < mark.index))
      mark = given.anchor->start;
    std::string tag = given.tag ? resolved_tag(*given.tag) : "";
    if (tag == "!") tag.clear();
    const bool bare_tag = given.tag && tag.empty();
    if (room.indentless && scanner_.check({Type::kBlockEntry}))
      return indentless_sequence(begun(YamlKind::kSequence, mark, tag, given));
    switch (scanner_.peek().type) {
      case Type::kScalar:
        return scalar(begun(YamlKind::kScalar, mark, tag, given), bare_tag);
      case Type::kFlowSequenceStart:
        return flow_sequence(begun(YamlKind::kSequence, mark, tag, given));
      case Type::kFlowMappingStart:
        return flow_mapping(begun(YamlKind::kMapping, mark, tag, given));
      case Type::kBlockSequenceStart:
        if (room.block) return block_sequence(begun(YamlKind::kSequence, mark, tag, given));
        break;
      case Type::kBlockMappingStart:
        if (room.block) return block_mapping(begun(YamlKind::kMapping, mark, tag, given));
        break;
      default:
        break;
    }
    if (!given.anchor && !given.tag)
      fail_found("expected the node content", "write null for an empty value, or put it in quotes");
    YamlNode* node = begun(YamlKind::kScalar, mark, tag, given);
    if (tag.empty()) node->tag = tag_name("null");
    return node;
  }

  /// A node that aliases inside it may already name.
  YamlNode* begun(YamlKind kind, const YamlMark& mark, const std::string& tag,
                  const Properties& given) {
    YamlNode* node = made(kind, mark);
    node->tag = tag;
    if (tag.empty() && kind != YamlKind::kScalar)
      node->tag = tag_name(kind == YamlKind::kSequence ? "seq" : "map");
    if (!given.anchor) return node;
    const auto [known, added] = anchors_.emplace(given.anchor->text, node);
    if (!added) {
      throw YamlError(given.anchor->start,
                      fmt::format("found duplicate anchor '{}'; first occurrence at line {}",
                                  given.anchor->text, known->second->mark.line + 1),
                      "give it another name");
    }
    return node;
  }

  YamlNode* scalar(YamlNode* node, bool bare_tag) {
    YamlToken token = scanner_.next();
    node->text = std::move(token.text);
    if (node->tag.empty())
      node->tag = tag_name(token.plain || bare_tag ? implicit_tag(node->text) : "str");
    return node;
  }

  YamlNode* block_sequence(YamlNode* list) {
    scanner_.next();
    while (scanner_.check({Type::kBlockEntry})) {
      const YamlToken dash = scanner_.next();
      const bool empty = scanner_.check({Type::kBlockEntry, Type::kBlockEnd});
      list->items.push_back(empty ? empty_scalar(dash.end) : node(kBlock));
    }
    end_block();
    return list;
  }

  void end_block() {
    if (!scanner_.check({Type::kBlockEnd}))
      fail_found("expected <block end>", "check the indentation of this line");
    scanner_.next();
  }

  YamlNode* indentless_sequence(YamlNode* list) {
    while (scanner_.check({Type::kBlockEntry})) {
      const YamlToken dash = scanner_.next();
      const bool empty =
          scanner_.check({Type::kBlockEntry, Type::kKey, Type::kValue, Type::kBlockEnd});
      list->items.push_back(empty ? empty_scalar(dash.end) : node(kBlock));
    }
    return list;
  }

  YamlNode* block_mapping(YamlNode* map) {
    scanner_.next();
    const auto part = [this](const YamlMark& mark) {
      const bool empty = scanner_.check({Type::kKey, Type::kValue, Type::kBlockEnd});
      return empty ? empty_scalar(mark) : node(kBlockValue);
    };
    while (scanner_.check({Type::kKey})) {
      YamlNode* key = part(scanner_.next().end);
      const bool has_value = scanner_.check({Type::kValue});
      YamlNode* value = has_value ? part(scanner_.next().end) : empty_scalar(scanner_.peek().start);
      map->pairs.emplace_back(key, value);
    }
    end_block();
    return map;
  }

  /// The comma between two entries of a flow collection.
  void take_comma(Type close) {
    if (scanner_.check({Type::kFlowEntry})) {
      scanner_.next();
      return;
    }
    const YamlToken& token = scanner_.peek();
    throw YamlError(token.start,
                    fmt::format("expected ',' or {}, but got {}", yaml_token_name(close),
                                yaml_token_name(token.type)),
                    fmt::format("close it with {}", yaml_token_name(close)));
  }

  /// What stands before or behind a colon inside brackets.
  YamlNode* flow_part(const YamlMark& mark, Type close, bool is_key) {
    const bool empty =
        scanner_.check({Type::kFlowEntry, close}) || (is_key && scanner_.check({Type::kValue}));
    return empty ? empty_scalar(mark) : node(kFlow);
  }

  YamlNode* flow_value(Type close) {
    if (!scanner_.check({Type::kValue})) return empty_scalar(scanner_.peek().start);
    const YamlMark end = scanner_.next().end;
    return flow_part(end, close, false);
  }

  YamlNode* flow_sequence(YamlNode* list) {
    scanner_.next();
    for (bool first = true; !scanner_.check({Type::kFlowSequenceEnd}); first = false) {
      if (!first) take_comma(Type::kFlowSequenceEnd);
      if (scanner_.check({Type::kKey})) {
        const YamlToken sign = scanner_.next();
        YamlNode* map = made(YamlKind::kMapping, sign.start);
        map->tag = tag_name("map");
        YamlNode* key = flow_part(sign.end, Type::kFlowSequenceEnd, true);
        map->pairs.emplace_back(key, flow_value(Type::kFlowSequenceEnd));
        list->items.push_back(map);
      } else if (!scanner_.check({Type::kFlowSequenceEnd})) {
        list->items.push_back(node(kFlow));
      }
    }
    scanner_.next();
    return list;
  }

  YamlNode* flow_mapping(YamlNode* map) {
    scanner_.next();
    for (bool first = true; !scanner_.check({Type::kFlowMappingEnd}); first = false) {
      if (!first) take_comma(Type::kFlowMappingEnd);
      if (scanner_.check({Type::kKey})) {
        const YamlMark end = scanner_.next().end;
        YamlNode* key = flow_part(end, Type::kFlowMappingEnd, true);
        map->pairs.emplace_back(key, flow_value(Type::kFlowMappingEnd));
      } else if (!scanner_.check({Type::kFlowMappingEnd})) {
        YamlNode* key = node(kFlow);
        map->pairs.emplace_back(key, empty_scalar(scanner_.peek().start));
      }
    }
    scanner_.next();
    return map;
  }

  YamlScanner scanner_;
  YamlGraph graph_;
  std::map<std::string, YamlNode*> anchors_;
  std::map<std::string, std::string> handles_;  // of %TAG
  int depth_ = 0;
};

}  // namespace

YamlGraph compose_yaml(std::u32string text) { return YamlComposer(std::move(text)).document(); }

}  // namespace ddp::train
