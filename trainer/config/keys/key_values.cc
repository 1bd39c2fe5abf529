// Between a field of Config and a Node: OmegaConf's typed merging, plus 3.0 and 1e3 for integers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "trainer/config/keys/key_table.h"
#include "trainer/hydra/yaml/python_number.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// Also of another name.
template <class E>
std::optional<E> value_named(std::string_view wanted) {
  const Names names = names_of(E{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t equal = names[i].find('=');
    if (names[i].substr(0, equal) != wanted) continue;
    if (equal == std::string_view::npos) return static_cast<E>(i);
    return value_named<E>(names[i].substr(equal + 1));
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& problem) { throw std::invalid_argument(problem); }

[[noreturn]] void refuse_type(const Node& value, std::string_view wanted, const std::string& fix) {
  refuse(fmt::format("'{}' ({}) is not {}; {}", shown(python_str(value)), python_type(value),
                     wanted, fix));
}

std::optional<int64_t> as_int(const Node& node) {
  if (node.kind == Kind::kInt) return node.integer;
  if (node.kind == Kind::kString) return python_int(node.text);
  constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers above are not exact
  const bool whole = node.kind == Kind::kFloat && std::nearbyint(node.real) == node.real &&
                     std::fabs(node.real) <= kExact;
  return whole ? int_of_float(node.real) : std::nullopt;
}

std::optional<double> as_float(const Node& node) {
  if (node.kind == Kind::kString) return python_float_from(node.text);
  if (node.kind != Kind::kFloat && node.kind != Kind::kInt) return std::nullopt;
  return number_of(node);
}

constexpr double kNoBound = std::numeric_limits<double>::infinity();
constexpr const char* kGroupFix =
    "give a list of groups, e.g. [{pattern: \"*.bias\", lr_mult: 0.5}]";

constexpr const char* kSourceFix =
    "give a list of sources, e.g. [{path: web, weight: 3}, {path: code, weight: 1}]";
constexpr const char* kSetFix = "give names with paths, e.g. {wiki: wiki.txt, code: code.txt}";

/// Assigns a value to a member, or throws std::invalid_argument: "<what>; <fix>".
struct Assign {
  const Field& field;
  const Node& value;

  void operator()(int64_t* member) const { *member = whole(give("a whole number")); }
  void operator()(std::optional<int64_t>* member) const {
    *member = std::nullopt;
    if (value.kind != Kind::kNull) *member = whole(give("null, or a whole number"));
  }
  void operator()(double* member) const { *member = number(value, give("a number")); }
  void operator()(AutoNumber* member) const {
    AutoNumber parsed;
    parsed.automatic = value.kind == Kind::kString && value.text == "auto";
    if (!parsed.automatic) parsed.value = number(value, give("auto, or a number"));
    if (field.whole && parsed.value != std::floor(parsed.value)) {
      refuse(fmt::format("{} is not a whole number; give auto or a number of {}", parsed.value,
                         field.unit));
    }
    *member = parsed;
  }
  void operator()(ClassWeights* member) const {
    const std::string fix = give("balanced, or a list of numbers") + ", one for each label";
    const bool balanced = value.kind == Kind::kString && value.text == "balanced";
    if (!balanced && value.kind != Kind::kList) refuse_type(value, "balanced or a list", fix);
    ClassWeights parsed{balanced, {}};
    for (const Node& item : value.items) parsed.values.push_back(number(item, fix));
    *member = std::move(parsed);
  }
  void operator()(std::array<double, 2>* member) const {
    const std::string fix = give("two numbers") + ", e.g. [0.9, 0.95]";
    if (value.kind != Kind::kList || value.items.size() != 2)
      refuse_type(value, "a list of 2 floats", fix);
    *member = {number(value.items[0], fix), number(value.items[1], fix)};
  }
  void operator()(bool* member) const {
    const auto parsed = lenient_bool(value);
    if (!parsed) refuse_type(value, "a boolean", "give true or false");
    *member = *parsed;
  }
  void operator()(std::string* member) const {
    if (value.is_container()) refuse_type(value, "a string", "give a string");
    std::string text = python_str(value);
    if (text.empty()) refuse("is empty; give a string");
    if (text.find('\0') != std::string::npos) refuse("contains a NUL byte; remove it");
    *member = std::move(text);
  }
  void operator()(std::vector<std::string>* member) const {
    if (value.kind == Kind::kString && !value.text.empty() && value.text == field.word_for_all) {
      *member = {"*"};
      return;
    }
    if (value.kind != Kind::kList)
      refuse_type(value, "a list of strings", "give a list, e.g. [\"...\"]");
    *member = texts("give a string");
  }
  void operator()(Verbosity* member) const {
    const auto all = lenient_bool(value);
    if (!all && value.kind != Kind::kString && value.kind != Kind::kList)
      refuse_type(value, "a bool or a list of names", "give true or [trainer]");
    *member = {all.value_or(false), texts("give logger names, e.g. [trainer]")};
    if (!all && value.kind == Kind::kString) member->loggers.push_back(value.text);
  }
  void operator()(std::vector<ParamGroup>* member) const {
    *member = entries<ParamGroup>("a list", kGroupFix, param_group);
  }
  void operator()(std::vector<WeightedSource>* member) const {
    *member = entries<WeightedSource>("a list", kSourceFix, [](const Node& entry) {
      check_keys(entry, {"path", "weight"}, "source", kSourceFix);
      WeightedSource source;
      if (entry.find("path") == nullptr) refuse(fmt::format("has no path; {}", kSourceFix));
      read(entry, "path", {}, &source.path);
      read(entry, "weight", {0, kNoBound}, &source.weight);
      return source;
    });
  }
  /// A map, or, as configurations are stored, a list of names and paths.
  void operator()(std::vector<NamedSet>* member) const {
    if (value.kind == Kind::kMap) {
      std::vector<NamedSet> sets;
      for (const std::string& name : value.key_texts()) {
        sets.push_back({name, ""});
        read(value, name.c_str(), {}, &sets.back().path);
      }
      *member = std::move(sets);
      return;
    }
    *member = entries<NamedSet>("a map", kSetFix, [](const Node& entry) {
      check_keys(entry, {"name", "path"}, "set", kSetFix);
      NamedSet set;
      read(entry, "name", {}, &set.name);
      read(entry, "path", {}, &set.path);
      return set;
    });
  }
  template <class E>
  requires std::is_enum_v<E>
  void operator()(E* member) const {
    const bool is_bool = value.kind == Kind::kBool;
    const std::string text = is_bool ? value.boolean ? "true" : "false" : python_str(value);
    auto named = value_named<E>(text);
    if (!named && is_bool && !value.boolean) named = value_named<E>("off");  // as YAML reads it
    const bool is_word = value.kind == Kind::kString || value.kind == Kind::kInt || is_bool;
    if (is_word && named) {
      *member = *named;
      return;
    }
    const auto names = choice_names<E>();
    refuse(fmt::format("'{}' is not one of {}; {}", shown(text), fmt::join(names, " | "),
                       did_you_mean(text, names, "choose one")));
  }

 private:
  /// The items of a list, each of them by `parse`; errors name the item.
  template <class T, class Parse>
  std::vector<T> entries(const char* wanted, const char* fix, const Parse& parse) const {
    if (value.kind != Kind::kList) refuse_type(value, wanted, fix);
    std::vector<T> parsed;
    for (const Node& item : value.items) {
      try {
        parsed.push_back(parse(item));
      } catch (const std::invalid_argument& problem) {
        refuse(fmt::format("entry {}: {}", parsed.size(), problem.what()));
      }
    }
    return parsed;
  }
  std::string give(const char* what) const {
    const std::string bounds = field.range.str();
    return fmt::format("give {}{}{}", what, bounds.empty() ? "" : " ", bounds);
  }
  void check_range(double number, const std::string& text, const std::string& fix) const {
    if (!field.range.holds(number)) refuse(fmt::format("{} is out of range; {}", text, fix));
  }
  int64_t whole(const std::string& fix) const {
    const auto parsed = as_int(value);
    if (!parsed) refuse_type(value, "an integer", fix);
    check_range(static_cast<double>(*parsed), std::to_string(*parsed), fix);
    return *parsed;
  }
  double number(const Node& node, const std::string& fix) const {
    const auto parsed = as_float(node);
    if (!parsed) refuse_type(node, "a number", fix);
    check_range(*parsed, python_float(*parsed), fix);
    return *parsed;
  }
  /// Assigns `key` of `entry`, if it is there, as a field of that range.
  template <class T>
  static void read(const Node& entry, const char* key, Range range, T* member) {
    const Node* given = entry.find(key);
    if (given == nullptr) return;
    try {
      Field field;
      field.range = range;
      Assign{field, *given}(member);
    } catch (const std::invalid_argument& problem) {
      refuse(fmt::format("{}: {}", key, problem.what()));
    }
  }
  static void check_keys(const Node& entry, const std::vector<std::string>& known, const char* what,
                         const char* fix_of_type) {
    if (entry.kind != Kind::kMap) refuse_type(entry, fmt::format("a {}", what), fix_of_type);
    for (const std::string& key : entry.key_texts()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const auto fix = fmt::format("known: {}", fmt::join(known, ", "));
      refuse(fmt::format("'{}' is not a key of a {}; {}", shown(key), what,
                         did_you_mean(key, known, fix)));
    }
  }
  /// One pattern or a list of them.
  static std::vector<std::string> patterns_of(const Node& entry) {
    const Node* pattern = entry.find("pattern");
    if (pattern == nullptr) refuse(fmt::format("has no pattern; {}", kGroupFix));
    if (pattern->kind == Kind::kString) return {pattern->text};
    std::vector<std::string> patterns;
    read(entry, "pattern", {}, &patterns);
    if (patterns.empty()) refuse("pattern: is empty; give at least one");
    return patterns;
  }
  static ParamGroup param_group(const Node& entry) {
    check_keys(entry, {"pattern", "lr_mult", "weight_decay", "optimizer", "frozen"}, "group",
               kGroupFix);
    ParamGroup group;
    group.patterns = patterns_of(entry);
    read(entry, "lr_mult", {0, kNoBound, true}, &group.lr_mult);
    read(entry, "frozen", {}, &group.frozen);
    if (entry.find("weight_decay") != nullptr)
      read(entry, "weight_decay", {0, kNoBound}, &group.weight_decay.emplace());
    if (entry.find("optimizer") != nullptr)
      read(entry, "optimizer", {}, &group.optimizer.emplace());
    if (group.frozen && entry.entries.size() > 2)
      refuse("frozen: true excludes all keys but pattern; remove the others");
    return group;
  }
  /// The items of a list.
  std::vector<std::string> texts(const std::string& fix) const {
    std::vector<std::string> out;
    for (const Node& item : value.items) {
      if (item.kind != Kind::kString) refuse_type(item, "a string", fix);
      out.push_back(item.text);
    }
    return out;
  }
};

/// A list with what `make` gives for each item.
template <class Items, class Make>
Node list_of(const Items& items, const Make& make) {
  Node node = Node::list();
  for (const auto& item : items) node.items.push_back(make(item));
  return node;
}

Node map_of(const std::vector<std::pair<std::string, Node>>& entries) {
  Node node = Node::map();
  for (const auto& [key, value] : entries) set_path(node, key, value);
  return node;
}

/// Only what differs from the defaults of an entry.
Node group_node(const ParamGroup& group) {
  Node node = map_of({{"pattern", Node::texts(group.patterns)}});
  if (group.frozen) set_path(node, "frozen", Node::of(true));
  if (group.lr_mult != 1.0) set_path(node, "lr_mult", Node::of(group.lr_mult));
  if (group.weight_decay) set_path(node, "weight_decay", Node::of(*group.weight_decay));
  if (group.optimizer)
    set_path(node, "optimizer", Node::of(std::string(facts_of(*group.optimizer).name)));
  return node;
}

struct Read {
  static Node number(double value) { return Node::of(value); }

  Node operator()(const int64_t* member) const { return Node::of(*member); }
  Node operator()(const std::optional<int64_t>* member) const {
    return *member ? Node::of(**member) : Node::null();
  }
  Node operator()(const double* member) const { return Node::of(*member); }
  Node operator()(const bool* member) const { return Node::of(*member); }
  Node operator()(const std::string* member) const {
    return member->empty() ? Node::null() : Node::of(*member);
  }
  Node operator()(const Verbosity* member) const {
    return member->loggers.empty() ? Node::of(member->all) : Node::texts(member->loggers);
  }
  Node operator()(const AutoNumber* member) const {
    return member->automatic ? Node::of(std::string("auto")) : Node::of(member->value);
  }
  Node operator()(const std::vector<std::string>* member) const { return Node::texts(*member); }
  Node operator()(const ClassWeights* member) const {
    if (member->balanced) return Node::of(std::string("balanced"));
    return member->values.empty() ? Node::null() : list_of(member->values, number);
  }
  Node operator()(const std::vector<ParamGroup>* member) const {
    return list_of(*member, group_node);
  }
  Node operator()(const std::vector<WeightedSource>* member) const {
    return list_of(*member, [](const WeightedSource& source) {
      return map_of({{"path", Node::of(source.path)}, {"weight", Node::of(source.weight)}});
    });
  }
  Node operator()(const std::vector<NamedSet>* member) const {
    return list_of(*member, [](const NamedSet& set) {
      return map_of({{"name", Node::of(set.name)}, {"path", Node::of(set.path)}});
    });
  }
  Node operator()(const std::array<double, 2>* member) const { return list_of(*member, number); }
  template <class E>
  requires std::is_enum_v<E> Node operator()(const E* member) const {
    const std::string name = choice_names<E>().at(static_cast<std::size_t>(*member));
    if (const auto whole = python_int(name)) return Node::of(*whole);
    return name == "true" || name == "false" ? Node::of(name == "true") : Node::of(name);
  }
};

void assign_null(const Field& field, Config& config) {
  if (field.null_means == NullMeans::kNotGiven) return;
  if (field.null_means == NullMeans::kError) refuse("cannot be null; give a value or omit the key");
  std::visit([](auto* member) { *member = {}; }, field.member(config));
  const FieldPointer member = field.member(config);
  if (auto* const* number = std::get_if<AutoNumber*>(&member)) (*number)->automatic = false;
}

}  // namespace

Node current_value(const Field& field, const Config& config) {
  // The list of fields needs one kind of accessor only; nothing is written through it here.
  return std::visit(Read{}, field.member(const_cast<Config&>(config)));
}

std::string assign_field(const Field& field, const Node& value, Config& config) {
  const FieldPointer member = field.member(config);
  const bool optional = std::holds_alternative<std::optional<int64_t>*>(member);
  try {
    if (value.kind == Kind::kNull && !optional) {
      assign_null(field, config);
    } else {
      std::visit(Assign{field, value}, member);
    }
    return "";
  } catch (const std::invalid_argument& problem) {
    return problem.what();
  }
}

}  // namespace ddp::train
