#include "trainer/config/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <sstream>

#include "trainer/config/message.h"
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
  TreeBuilder(std::shared_ptr<const std::string> source, const std::string& text)
      : source_(std::move(source)), text_(text) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    const bool fine = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_';
    });
    if (!fine) fail(mark, "not valid YAML: an anchor's name is letters, digits, - and _");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // yaml-cpp reads [1,,2] as three items.
    const auto at = static_cast<std::size_t>(mark.pos);
    const bool empty_item = at < text_.size() && text_[at] == ',';
    if (empty_item && !open_.empty() && open_.back().node.kind == Kind::kList) {
      fail(mark, "expected the node content, but found ','; write null for an empty item");
    }
    const bool value_of_key = !open_.empty() && open_.back().has_key;
    if (value_of_key) check_colon(open_.back());
    add({placed(Node::null(), mark), 1}, anchor, false, at);
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
    const auto at = static_cast<std::size_t>(mark.pos);
    const bool plain = tag == "?" || (tag == "!" && is_bare_exclamation(at));
    if (!plain) check_quote_closed(mark);
    Node node = plain ? type_plain_scalar(value) : tagged_scalar(mark, tag, value);
    // Only a plain << merges, and PyYAML's "=" key is of no use here.
    add({placed(std::move(node), mark), 1}, anchor, plain, at);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    check_container_tag(mark, tag, "seq");
    open(placed(Node::list(), mark), anchor, style == YAML::EmitterStyle::Flow);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    check_container_tag(mark, tag, "map");
    open(placed(Node::map(), mark), anchor, style == YAML::EmitterStyle::Flow);
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
    bool flow = false;
    bool has_key = false;
    bool key_is_plain = false;
    std::size_t key_at = 0;  // where the key starts in the text
    Node key;
    std::vector<Entry> merged;  // what << brought, weaker than the map's own entries
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw UserError(fmt::format("{}:{}:{}: {}", *source_, mark.line + 1, mark.column + 1, what));
  }
  [[noreturn]] void fail(const Place& place, const std::string& what) const {
    throw UserError(fmt::format("{}: {}", place.str(), what));
  }

  /// "! 5": the tag says nothing, and what follows is no quoted text.
  bool is_bare_exclamation(std::size_t at) const {
    if (at >= text_.size() || text_[at] != '!') return false;
    const std::size_t next = text_.find_first_not_of(" !", at);
    return next != std::string::npos &&
           std::string_view("'\"|>").find(text_[next]) == std::string_view::npos;
  }

  /// yaml-cpp takes the end of the file for a closing quote.
  void check_quote_closed(const YAML::Mark& mark) const {
    auto at = static_cast<std::size_t>(mark.pos);
    while (at < text_.size() &&
           (text_[at] == '!' || text_[at] == '&')) {  // a tag or an anchor before it
      at = std::min(text_.find_first_of(" \n", at), text_.size());
      at = std::min(text_.find_first_not_of(" \n", at), text_.size());
    }
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return;
    if (quote_end(at) == std::string::npos) {
      fail(mark,
           "not valid YAML: found unexpected end of stream in a quoted text; close the quote");
    }
  }

  /// Behind the closing quote of the text that starts at `at`, or npos.
  std::size_t quote_end(std::size_t at) const {
    const char quote = text_[at];
    for (std::size_t i = at + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        const bool doubled = quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote;
        if (!doubled) return i + 1;
        ++i;
      }
    }
    return std::string::npos;
  }

  /// yaml-cpp takes a line without a colon for a key without a value.
  void check_colon(const Open& map) const {
    if (map.key_at >= text_.size() || map.flow) return;
    const std::size_t before =
        text_.find_last_not_of(" \t\n", map.key_at == 0 ? 0 : map.key_at - 1);
    if (map.key_at > 0 && before != std::string::npos && text_[before] == '?') return;  // "? key"
    std::size_t end = map.key_at + map.key.text.size();
    if (text_[map.key_at] == '"' || text_[map.key_at] == '\'') {
      end = quote_end(map.key_at);
    } else if (text_[map.key_at] == '!' || text_[map.key_at] == '&') {
      return;  // a tag or an anchor before the key: not worth the search
    } else if (map.key.kind != Kind::kString) {
      end = text_.find_first_of(" :\t\r\n", map.key_at);
    } else if (text_.compare(map.key_at, map.key.text.size(), map.key.text) != 0) {
      return;  // a key of several lines
    }
    const std::size_t colon = std::min(text_.find_first_not_of(" \t", end), text_.size());
    if (colon < text_.size() && text_[colon] == ':') return;
    fail(map.key.place,
         fmt::format("not valid YAML: could not find expected ':' after '{}'; write key: value",
                     shown(map.key.text)));
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

  void open(Node node, YAML::anchor_t anchor, bool flow) {
    if (open_.size() >= kDeepest) fail(node.place, "nested too deeply");
    open_.push_back(Open{std::move(node), anchor, 1, flow, false, false, 0, Node{}, {}});
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
      if (same_key(known.key, entry.key)) {
        known.value = std::move(entry.value);
        return;
      }
    }
    entries.push_back(std::move(entry));
  }

  void add(Sized value, YAML::anchor_t anchor, bool plain, std::size_t at = std::string::npos) {
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
      if (node.kind == Kind::kNull) fail(node.place, "null as a key; put it into quotes");
      top.key = std::move(node);
      top.key_is_plain = plain;
      top.key_at = at;
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
      if (!same_key(known.key, map.key)) continue;
      if (map.key.kind != Kind::kString) {  // as PyYAML: only texts are checked
        known.value = std::move(value);
        return;
      }
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
  const std::string& text_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Sized> anchors_;
  std::size_t nodes_ = 0;
};

/// YAML's printable characters, in well-formed UTF-8; the number of bytes of the one at `at`, or 0.
std::size_t printable_character(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) {
    const bool fine =
        first == 0x09 || first == 0x0a || first == 0x0d || (first >= 0x20 && first < 0x7f);
    return fine ? 1 : 0;
  }
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (size == 4 ? 0x07U : size == 3 ? 0x0fU : 0x1fU);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<unsigned, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool well_formed = first >= 0xc2 && first <= 0xf4 && code >= kSmallest.at(size);
  const bool fine = code == 0x85 || (code >= 0xa0 && code < 0xd800) ||
                    (code >= 0xe000 && code < 0xfffe) || (code >= 0x10000 && code < 0x110000);
  return well_formed && fine ? size : 0;
}

void check_characters(const std::string& text, const std::string& source) {
  int line = 1;
  int column = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = printable_character(text, at);
    if (size == 0) {
      throw UserError(
          fmt::format("{}:{}:{}: not valid YAML: a special character or broken UTF-8 (byte "
                      "0x{:02x}); remove it",
                      source, line, column, static_cast<unsigned char>(text[at])));
    }
    ++column;
    if (text[at] == '\n') {
      ++line;
      column = 1;
    }
    at += size;
  }
}

}  // namespace

Node read_yaml(const std::string& with_mark, const std::string& source) {
  // Positions count from behind the byte order mark.
  const std::string text = with_mark.substr(with_mark.starts_with("\xef\xbb\xbf") ? 3 : 0);
  const auto shared_source = std::make_shared<const std::string>(source);
  TreeBuilder builder(shared_source, text);
  check_characters(text, source);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    Node root = builder.take();
    TreeBuilder ignored(shared_source, text);
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
