#include "trainer/config/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "trainer/config/yaml_scalar.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepest = 200;        // nesting; deeper is an attack or a mistake
constexpr std::size_t kMostNodes = 200'000;  // after aliases are copied ("billion laughs")

constexpr std::string_view kYamlTag = "tag:yaml.org,2002:";

bool is_merge_key(const Node& key) { return key.kind == Kind::kString && key.text == "<<"; }

/// Builds the tree from the parser's events; a stack of open containers, the parser's own order.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const std::string> source) : source_(std::move(source)) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add({placed(Node::null(), mark), 1}, anchor, false);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      fail(mark, "an alias inside its own anchor; a value cannot contain itself");
    count(found->second);  // before the copy
    add(found->second, 0, false);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool plain = tag == "?";
    Node node = plain ? type_plain_scalar(value) : tagged_scalar(mark, tag, value);
    // Only a plain << merges, and PyYAML's "=" key is of no use here.
    add({placed(std::move(node), mark), 1}, anchor, plain);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_container_tag(mark, tag, "seq");
    open(placed(Node::list(), mark), anchor);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_container_tag(mark, tag, "map");
    open(placed(Node::map(), mark), anchor);
  }

  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  /// A value and how many nodes it consists of.
  struct Sized {
    Node node;
    std::size_t size = 1;
  };

  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    std::size_t size = 1;
    bool has_key = false;
    bool key_is_plain = false;
    Node key;
    std::vector<Entry> merged;  // what << brought, weaker than the map's own entries
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw UserError(fmt::format("{}:{}:{}: {}", *source_, mark.line + 1, mark.column + 1, what));
  }
  [[noreturn]] void fail(const Place& place, const std::string& what) const {
    throw UserError(fmt::format("{}: {}", place.str(), what));
  }

  Node placed(Node node, const YAML::Mark& mark) const {
    node.place = {source_, mark.line + 1, mark.column + 1};
    return node;
  }

  Node tagged_scalar(const YAML::Mark& mark, const std::string& tag,
                     const std::string& value) const {
    if (tag == "!") return Node::of(value);
    std::optional<Node> node;
    if (tag == std::string(kYamlTag) + "str") node = Node::of(value);
    if (tag == std::string(kYamlTag) + "int") node = yaml_int(value);
    if (tag == std::string(kYamlTag) + "float") node = yaml_float(value);
    if (tag == std::string(kYamlTag) + "bool") node = yaml_bool(value);
    if (tag == std::string(kYamlTag) + "null") node = Node::null();
    if (!node)
      fail(mark, fmt::format("could not determine a constructor for the tag '{}'; remove it", tag));
    return *node;
  }

  void check_container_tag(const YAML::Mark& mark, const std::string& tag,
                           std::string_view kind) const {
    const bool known =
        tag.empty() || tag == "?" || tag == "!" || tag == std::string(kYamlTag) + std::string(kind);
    if (!known)
      fail(mark, fmt::format("could not determine a constructor for the tag '{}'; remove it", tag));
  }

  void open(Node node, YAML::anchor_t anchor) {
    if (open_.size() >= kDeepest) fail(node.place, "nested too deeply");
    open_.push_back(Open{std::move(node), anchor, 1, false, false, Node{}, {}});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    append_merged(done);
    add({std::move(done.node), done.size}, done.anchor, false);
  }

  /// The map's own entries win over merged ones, which come first, as PyYAML flattens them.
  void append_merged(Open& map) const {
    if (map.merged.empty()) return;
    std::vector<Entry> all;
    for (std::vector<Entry>* part : {&map.merged, &map.node.entries}) {
      for (Entry& entry : *part) put(all, std::move(entry));
    }
    map.node.entries = std::move(all);
  }

  static void put(std::vector<Entry>& entries, Entry entry) {
    for (Entry& known : entries) {
      if (same_value(known.key, entry.key)) {
        known.value = std::move(entry.value);
        return;
      }
    }
    entries.push_back(std::move(entry));
  }

  void add(Sized value, YAML::anchor_t anchor, bool plain) {
    if (anchor != 0) anchors_[anchor] = value;
    Node& node = value.node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    open_.back().size += value.size;
    count(Sized{Node{}, 1});
    Open& top = open_.back();
    if (top.node.kind == Kind::kList) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      if (node.is_container()) fail(node.place, "a list or map as a key; keys are plain words");
      top.key = std::move(node);
      top.key_is_plain = plain;
      top.has_key = true;
    } else {
      top.has_key = false;
      add_entry(top, std::move(node));
    }
  }

  void add_entry(Open& map, Node value) {
    if (map.key_is_plain && is_merge_key(map.key)) {
      merge(map, value);
      return;
    }
    for (Entry& known : map.node.entries) {
      if (!same_value(known.key, map.key)) continue;
      fail(map.key.place,
           fmt::format("found duplicate key '{}'; first given at line {}, keep one of them",
                       python_str(map.key), known.key.place.line));
    }
    map.node.entries.push_back(Entry{map.key, std::move(value)});
  }

  void merge(Open& map, const Node& value) {
    std::vector<const Node*> sources;
    if (value.kind == Kind::kMap) sources.push_back(&value);
    if (value.kind == Kind::kList) {
      for (const Node& item : value.items)
        sources.insert(sources.begin(), &item);  // the first wins
    }
    if (!value.is_container())
      fail(map.key.place, "expected a mapping or list of mappings for merging");
    for (const Node* source : sources) {
      if (source->kind != Kind::kMap) fail(map.key.place, "expected a mapping for merging");
      for (const Entry& entry : source->entries) put(map.merged, entry);
    }
  }

  void count(const Sized& value) {
    nodes_ += value.size;
    if (nodes_ > kMostNodes) throw UserError(*source_ + ": aliases make this file too large");
  }

  std::shared_ptr<const std::string> source_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Sized> anchors_;
  std::size_t nodes_ = 0;
};

}  // namespace

Node read_yaml(const std::string& text, const std::string& source) {
  const auto shared_source = std::make_shared<const std::string>(source);
  TreeBuilder builder(shared_source);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    Node root = builder.take();
    TreeBuilder ignored(shared_source);
    if (parser.HandleNextDocument(ignored)) {
      throw UserError(source +
                      ": expected a single document in the stream, but found another document; "
                      "remove the `---`");
    }
    return root;
  } catch (const YAML::Exception& e) {
    throw UserError(fmt::format("{}:{}:{}: not valid YAML: {}", source, e.mark.line + 1,
                                e.mark.column + 1, e.msg));
  }
}

}  // namespace ddp::train
