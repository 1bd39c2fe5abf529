#include "trainer/hydra/yaml/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "trainer/hydra/yaml/yaml_errors.h"
#include "trainer/hydra/yaml/yaml_scalar.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepestYaml = 200;  // nested lists and maps
// With every alias copied ("billion laughs"); keys are searched for one by one.
constexpr std::size_t kMostNodes = 20'000;

constexpr std::string_view kYamlTag = "tag:yaml.org,2002:";

/// Builds the tree from yaml-cpp's events, in the order in which it parses.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlText& text) : text_(text) {}

  Node take() { return std::move(root_); }
  /// Where the innermost list or map in brackets begins; nullptr for none.
  const YAML::Mark* open_bracket() const {
    for (auto frame = open_.rbegin(); frame != open_.rend(); ++frame) {
      if (frame->flow && text_.at(frame->begin) != '\0' &&
          std::string_view("[{").find(text_.at(frame->begin)) != std::string_view::npos)
        return &frame->begin;
    }
    return nullptr;
  }
  /// The last thing that was read.
  const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) text_.fail_document(mark);
  }
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    const auto [first, added] = anchor_lines_.emplace(name, mark.line + 1);
    if (added) return;
    text_.fail(mark,
               fmt::format("duplicate anchor '{}', first given on line {}", name, first->second),
               "give it another name");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!open_.empty()) check_empty(mark, open_.back());
    add(Node::null(), is_left_out(mark) ? open_.back().key_mark : mark, anchor);
    last_ = mark;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      text_.fail(mark, "this alias refers to the value that contains it", "write the value out");
    }
    count(mark, size_of(found->second));  // before the copy
    add(found->second, mark, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // A lone ! leaves the type to the looks, even those of a quoted text.
    const bool plain = tag == "?" || (tag == "!" && text_.at(mark) == '!');
    if (plain && value.starts_with('\t'))
      text_.fail(mark, "tab in the indentation", "indent with spaces");
    if (is_merge(tag, plain, value)) return add_merge_key(mark);
    add(scalar(mark, tag, plain, value), mark, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, "seq", Node::list(), anchor, style == YAML::EmitterStyle::Flow);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, tag, "map", Node::map(), anchor, style == YAML::EmitterStyle::Flow);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  /// A list or map that is being read.
  struct Frame {
    Node node;
    YAML::Mark begin;
    YAML::anchor_t anchor = 0;
    bool flow = false;
    bool has_key = false;
    bool merges = false;  ///< The key is <<.
    Node key;
    YAML::Mark key_mark;
    std::map<std::string, int> key_lines;
    std::vector<Entry> merged;  ///< What << brought: weaker than the map's own, and before them.
  };

  /// A null that nobody wrote: [1,,2], or a line without a colon, which yaml-cpp takes for a key.
  void check_empty(const YAML::Mark& mark, const Frame& top) const {
    if (top.flow && top.node.kind == Kind::kList && text_.at(mark) == ',')
      text_.fail(mark, "empty list item", "write null for it, or remove the comma");
    const bool no_colon = !top.flow && top.has_key && mark.pos <= top.key_mark.pos;
    if (!no_colon || text_.at(mark) == '?') return;
    const std::string key = python_str(top.key);
    const bool no_space = key.find(':') != std::string::npos;
    text_.fail(
        top.key_mark,
        fmt::format("no {} in '{}'", no_space ? "space after the colon" : "colon", shown(key)),
        "write key: value");
  }

  /// A value that is left out has the mark of what comes next, some lines below its key.
  bool is_left_out(const YAML::Mark& mark) const {
    return !open_.empty() && open_.back().has_key && mark.line > open_.back().key_mark.line;
  }

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == Kind::kMap && !open_.back().has_key;
  }

  static bool is_merge(std::string_view tag, bool plain, std::string_view value) {
    return (plain && value == "<<") || tag == std::string(kYamlTag) + "merge";
  }

  Node scalar(const YAML::Mark& mark, const std::string& tag, bool plain,
              const std::string& value) const {
    if (plain && value == "=" && !expects_key())
      text_.fail(mark, "a lone = is special in YAML", "quote it");
    if (value.empty() && text_.ends_with_open_quote(mark))
      text_.fail(mark, "this quote is never closed", "close it");
    if (first_bad_byte(value) != std::string_view::npos)  // of yaml-cpp 0.7's making
      text_.fail(mark, "\\N and \\_ are not supported", "write the character itself");
    if (!plain && tag == "!") return Node::of(value);
    const std::string_view name =
        std::string_view(tag).substr(tag.starts_with(kYamlTag) ? kYamlTag.size() : 0);
    const auto node = plain ? plain_scalar(value) : tagged_scalar(name, value);
    if (node) return *node;
    if (plain) {
      text_.fail(mark, fmt::format("'{}' does not fit in 64 bits", shown(value)),
                 "quote it if it is text");
    }
    text_.fail(mark, fmt::format("'{1}' is not of type {0}", tag, shown(value)),
               "remove it, or quote the text");
  }

  void open(const YAML::Mark& mark, const std::string& tag, std::string_view kind, Node node,
            YAML::anchor_t anchor, bool flow) {
    last_ = mark;
    if (open_.size() >= kDeepestYaml)
      text_.fail(mark, "nested too deeply", fmt::format("use at most {} levels", kDeepestYaml));
    const bool known =
        tag.empty() || tag == "?" || tag == "!" || tag == std::string(kYamlTag).append(kind);
    if (!known) text_.fail(mark, fmt::format("unknown tag '{}'", tag), "remove it");
    const YAML::Mark& outermost = open_bracket() != nullptr ? *open_bracket() : mark;
    if (expects_key() && flow && text_.is_never_closed(outermost)) text_.fail_bracket(outermost);
    if (expects_key())
      text_.fail(mark, "a list or map cannot be a key",
                 "use a plain word; quote text that contains {");
    Frame frame;
    frame.node = std::move(node);
    frame.begin = mark;
    frame.anchor = anchor;
    frame.flow = flow;
    open_.push_back(std::move(frame));
  }

  void close() {
    Frame done = std::move(open_.back());
    open_.pop_back();
    if (!done.merged.empty()) {
      Node all = Node::map();
      for (std::vector<Entry>* part : {&done.merged, &done.node.entries}) {
        for (Entry& entry : *part) set_entry(all, std::move(entry.key), std::move(entry.value));
      }
      done.node = std::move(all);
    }
    add(std::move(done.node), done.begin, done.anchor);
  }

  void add(Node value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    last_ = mark;
    value.place = text_.place(mark);
    if (anchor != 0) anchors_[anchor] = value;
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    count(mark, 1);
    Frame& top = open_.back();
    if (top.node.kind == Kind::kList) {
      top.node.items.push_back(std::move(value));
    } else if (top.has_key) {
      top.has_key = false;
      add_entry(top, mark, std::move(value));
    } else {
      take_key(top, mark, std::move(value));
    }
  }

  void take_key(Frame& top, const YAML::Mark& mark, Node key) {
    if (key.is_container())  // of an alias
      text_.fail(mark, "a list or map cannot be a key", "use a plain word");
    if (key.kind == Kind::kNull) text_.fail(mark, "null cannot be a key", "quote it");
    top.has_key = true;
    top.merges = false;
    top.key_mark = mark;
    top.key = std::move(key);
    if (top.key.kind != Kind::kString) return;  // as OmegaConf's loader: a later 1: replaces one
    const auto [first, added] = top.key_lines.emplace(top.key.text, mark.line + 1);
    if (added) return;
    text_.fail(mark, fmt::format("duplicate key '{}'", shown(top.key.text)),
               fmt::format("first given on line {}; keep one", first->second));
  }

  void add_merge_key(const YAML::Mark& mark) {
    last_ = mark;
    if (!expects_key()) text_.fail(mark, "<< can only be a key", "quote it if it is text");
    open_.back().has_key = open_.back().merges = true;
    open_.back().key_mark = mark;
    open_.back().key = Node::of(std::string("<<"));
  }

  void add_entry(Frame& map, const YAML::Mark& mark, Node value) {
    if (map.merges) return merge(map, mark, value);
    if (map.key.kind == Kind::kString) {
      map.node.entries.push_back(Entry{std::move(map.key), std::move(value)});
    } else {
      set_entry(map.node, std::move(map.key), std::move(value));
    }
  }

  void merge(Frame& map, const YAML::Mark& mark, const Node& value) {
    std::vector<const Node*> sources;
    if (value.kind == Kind::kMap) sources.push_back(&value);
    for (const Node& item : value.items) sources.insert(sources.begin(), &item);  // the first wins
    const bool maps = value.is_container() &&
                      std::all_of(sources.begin(), sources.end(),
                                  [](const Node* source) { return source->kind == Kind::kMap; });
    if (!maps) text_.fail(map.key_mark, "<< needs a map or a list of maps", "give it an *alias");
    Node all = Node::map();
    all.entries = std::move(map.merged);
    for (const Node* source : sources) {
      count(mark, source->entries.size());
      for (const Entry& entry : source->entries) set_entry(all, entry.key, entry.value);
    }
    map.merged = std::move(all.entries);
  }

  static std::size_t size_of(const Node& node) {
    std::size_t size = 1;
    for (const Node& item : node.items) size += size_of(item);
    for (const Entry& entry : node.entries) size += 1 + size_of(entry.value);
    return size;
  }

  void count(const YAML::Mark& mark, std::size_t size) {
    nodes_ += size;
    if (nodes_ > kMostNodes)
      text_.fail(mark, fmt::format("more than {} values, with aliases expanded", kMostNodes),
                 "make the file smaller");
  }

  const YamlText& text_;
  Node root_;
  std::vector<Frame> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::map<std::string, int> anchor_lines_;
  YAML::Mark last_;
  int documents_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace

Node read_yaml(const std::string& with_mark, const std::string& source) {
  const YamlText text(with_mark, source);
  TreeBuilder builder(text);
  try {
    std::istringstream stream(text.for_parser());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    text.fail(e, builder.open_bracket(), builder.last());
  }
  return builder.take();
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
