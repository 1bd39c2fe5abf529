// The composed configuration before typing, parsed from YAML text and overrides.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::train {

/// The source of a value: a file with line and column (from 1), or an override on the command
/// line.
struct Place {
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;

  static Place of_override(const std::string& text);

  /// "cfg.yaml:12:3", "command line: a.b=1", or "" when unknown.
  std::string str() const;
};

/// Throws UserError: the place, where there is one, and the text, without the key that it begins
/// with ("a.b: is ...") if the override contains that already.
[[noreturn]] void fail_with(const Place& place, const std::string& text);

template <class... Args>
[[noreturn]] void fail_at(const Place& place, fmt::format_string<Args...> text, Args&&... args) {
  fail_with(place, fmt::format(text, std::forward<Args>(args)...));
}

enum class Kind { kNull, kBool, kInt, kFloat, kString, kList, kMap };

struct Entry;

/// One value with its YAML type. A string "???" is a missing value, a string with "${" an
/// interpolation.
struct Node {
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0.0;
  std::string text;            ///< kString
  bool quoted = false;         ///< kString: an override gave it in quotes.
  std::vector<Node> items;     ///< kList
  std::vector<Entry> entries;  ///< kMap, in order of appearance
  Place place;

  static Node null();
  static Node of(bool value);
  static Node of(int64_t value);
  static Node of(double value);
  static Node of(std::string value);
  static Node list();
  static Node texts(const std::vector<std::string>& values);
  static Node map();

  bool is_container() const { return kind == Kind::kList || kind == Kind::kMap; }
  bool is_missing() const { return kind == Kind::kString && text == "???"; }
  bool is_interpolation() const;

  /// The entry of a map by its string key, or nullptr.
  Node* find(std::string_view key);
  const Node* find(std::string_view key) const;
  /// The same, or the item of a list by its index.
  Node* child(std::string_view name);
  /// The keys of a map, as texts.
  std::vector<std::string> key_texts() const;
};

/// A map key keeps its type: 1 and "1" are two keys, as in OmegaConf.
struct Entry {
  Node key;
  Node value;
};

/// Equal kind and content; places do not count.
bool same_value(const Node& a, const Node& b);

/// Equal as keys of a Python dict: 1, 1.0 and True are one key.
bool same_key(const Node& a, const Node& b);

/// Return the map without the entry of that key, and with only that entry.
Node without_key(Node map, std::string_view key);
Node only_key(const Node& map, std::string_view key);

/// Sets the entry of that key; an existing one keeps its place in the order.
void set_entry(Node& map, Node key, Node value);

/// A scalar as Python's str() writes it: True, None, 1e-05, 1.0; containers with quotes around
/// texts: [1, 'x'].
std::string python_str(const Node& node);

/// The shortest text that reads back equal, as Python writes it: 1.0, 1e-05, inf.
std::string python_float(double value);

/// The Python type's name, for messages: str, int, float, bool, NoneType,
/// list, dict.
std::string_view python_type(const Node& node);

/// "a", "b" -> "a.b"; "" and "b" -> "b"
std::string joined_path(const std::string& parent, const std::string& name);

/// "a.b.c" -> {"a", "b", "c"}
std::vector<std::string> split_path(std::string_view path);

/// The node at a dotted path of string keys, or nullptr.
const Node* find_path(const Node& root, const std::string& path);

/// Sets a dotted path, creating the maps on the way.
void set_path(Node& root, const std::string& path, Node value);

}  // namespace ddp::train
