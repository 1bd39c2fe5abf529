#include "trainer/config/interpolation.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <stdexcept>

#include "trainer/config/interpolation_parser.h"
#include "trainer/config/message.h"
#include "trainer/config/python_number.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepest = 100;          // references that follow each other
constexpr std::size_t kMostNodes = 1'000'000;  // of the resolved tree

/// A node and the way to it: relative interpolations count dots from where they stand.
struct Spot {
  const Node* node = nullptr;
  const Spot* parent = nullptr;
  std::string key;
  bool final = false;  ///< The result of a resolver: a "${" in it is text.
};

/// What is wrong with an interpolation; resolve() adds the place and the key.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string full_key(const Spot& spot) {
  if (spot.parent == nullptr) return "";
  const std::string before = full_key(*spot.parent);
  if (spot.parent->node->kind == Kind::kList) return fmt::format("{}[{}]", before, spot.key);
  return before.empty() ? spot.key : before + "." + spot.key;
}

/// "a.b[0][c]" -> a, b, 0, c
std::vector<std::string> split_key(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.' || c == '[') {
      // a[0].b: the bracket has ended a part already; [a]: the path begins with one.
      if (!parts.back().empty() || (c == '.' && parts.size() == 1)) parts.emplace_back();
    } else if (c == ']') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.back().empty() && parts.size() > 1) parts.pop_back();
  return parts;
}

class Resolver {
 public:
  Resolver(const Node& root, const Node* composed, int depth = 0)
      : composed_(composed), nesting_(depth), root_{&root, nullptr, "", false} {}

  Node resolve_all() {
    Node out = *root_.node;
    for (std::size_t i = 0; i < out.entries.size(); ++i) {
      if (out.entries[i].key.text != "hydra")
        out.entries[i].value = finished(child_entry(root_, i));
    }
    return out;
  }

  Node select_from_root(const std::string& path) {
    const Spot at{nullptr, &root_, "", false};
    try {
      const Spot* found = select(path, at, false);
      return found == nullptr || found->node->is_missing() ? Node::null() : *found->node;
    } catch (const std::domain_error&) {
      return Node::null();
    } catch (const Problem& e) {
      throw UserError(path + ": " + e.what());
    }
  }

  /// The node behind the one at the path, whose steps need no dereference.
  Node behind(const std::vector<std::string>& path) {
    const Spot* spot = &root_;
    for (const std::string& part : path) {
      spot = step(*spot, part);
      if (spot == nullptr) return Node::null();
    }
    return *dereferenced(*spot).node;
  }

 private:
  Node finished(const Spot& at) {
    if (++nodes_ > kMostNodes) throw UserError("interpolations make the configuration too large");
    const Spot& spot = dereferenced(at);
    Node out = *spot.node;
    if (!at.node->place.str().empty()) out.place = at.node->place;
    if (!out.is_container()) return out;
    // A map that reaches itself through another one has no end.
    if (++depth_ > kDeepest) fail(at, "Recursive interpolation detected" + chain_text());
    for (std::size_t i = 0; i < out.items.size(); ++i) out.items[i] = finished(child(spot, i));
    for (std::size_t i = 0; i < out.entries.size(); ++i) {
      out.entries[i].value = finished(child_entry(spot, i));
    }
    --depth_;
    return out;
  }

  const Spot& add_spot(Spot spot) { return spots_.emplace_back(std::move(spot)); }

  const Spot& child(const Spot& list, std::size_t i) {
    return add_spot({&list.node->items[i], &list, std::to_string(i), list.final});
  }
  const Spot& child_entry(const Spot& map, std::size_t i) {
    const Entry& entry = map.node->entries[i];
    return add_spot({&entry.value, &map, python_str(entry.key), map.final});
  }

  const Spot& temporary(Node node, const Spot* parent, bool final) {
    temporaries_.push_back(std::move(node));
    return add_spot({&temporaries_.back(), parent, "", final});
  }

  [[noreturn]] void fail(const Spot& spot, const std::string& what) const {
    const std::string key = full_key(spot);
    const std::string place = spot.node->place.str();
    throw UserError(fmt::format("{}{}{}: {}", place, place.empty() ? "" : ": ", key, what));
  }

  std::string chain_text() const {
    if (active_.size() < 2) return "";
    std::string text;
    for (const Spot* spot : active_) text += (text.empty() ? "" : " -> ") + full_key(*spot);
    return " (" + text + ")";
  }

  /// The value that an interpolation stands for, or the spot itself.
  const Spot& dereferenced(const Spot& spot) {
    if (spot.final || !spot.node->is_interpolation()) return spot;
    for (const Spot* before : active_) {
      if (before->node != spot.node) continue;
      active_.push_back(&spot);
      const std::string chain = chain_text();
      active_.clear();
      fail(spot, "Recursive interpolation detected" + chain + "; break the circle");
    }
    if (active_.size() >= kDeepest) fail(spot, "interpolations follow each other too deeply");
    active_.push_back(&spot);
    const Spot* result = nullptr;
    try {
      result = &evaluate(parse_interpolated(spot.node->text), spot);
    } catch (const Problem& e) {
      fail(spot, e.what() + std::string(active_.size() > 1 ? chain_text() : ""));
    } catch (const std::invalid_argument& e) {
      fail(spot, fmt::format("GrammarParseError: {}; write \\${{ for a plain ${{", e.what()));
    }
    active_.pop_back();
    return *result;
  }

  /// `at` is the node that holds the interpolation: its parent is where relative keys start.
  const Spot& evaluate(const Expr& expr, const Spot& at) {
    switch (expr.kind) {
      case ExprKind::kLiteral:
        return temporary(expr.literal, at.parent, true);
      case ExprKind::kConcat: {
        std::string text;
        for (const Expr& part : expr.children) text += python_str(*evaluate(part, at).node);
        return temporary(Node::of(std::move(text)), at.parent, true);
      }
      case ExprKind::kList: {
        Node list = Node::list();
        for (const Expr& item : expr.children) list.items.push_back(value_of(item, at));
        return temporary(std::move(list), at.parent, true);
      }
      case ExprKind::kMap: {
        Node map = Node::map();
        for (std::size_t i = 0; i < expr.keys.size(); ++i) {
          set_entry(map, expr.keys[i], value_of(expr.children[i], at));
        }
        return temporary(std::move(map), at.parent, true);
      }
      case ExprKind::kReference:
        return reference(joined(expr, at), at);
      case ExprKind::kCall:
        return call(expr, at);
    }
    throw Problem("unknown expression");
  }

  /// A value on its own, resolved to the last leaf.
  Node value_of(const Expr& expr, const Spot& at) { return finished(evaluate(expr, at)); }

  std::string text_part(const Expr& part, const Spot& at, std::string_view what) {
    const Node& node = *evaluate(part, at).node;
    if (node.kind != Kind::kString) {
      throw Problem(
          fmt::format("an interpolation that denotes {} should return a string, but instead "
                      "returned `{}` of type `{}`",
                      what, shown(python_str(node)), python_type(node)));
    }
    return node.text;
  }

  std::string joined(const Expr& expr, const Spot& at) {
    std::string path;
    for (const Expr& part : expr.children) path += text_part(part, at, "a config key");
    return path;
  }

  /// ${path}, seen from the container that holds `at`.
  const Spot& reference(const std::string& path, const Spot& at) {
    const Spot* found = nullptr;
    try {
      found = select(path, at, true);
    } catch (const std::domain_error& e) {
      throw Problem(e.what());
    }
    if (found == nullptr) throw Problem(fmt::format("Interpolation key '{}' not found", path));
    for (const Spot* above = at.parent; above != nullptr; above = above->parent) {
      if (above->node == found->node) throw Problem("Interpolation to parent node detected");
    }
    return *found;
  }

  /// The node at the path, dereferenced; nullptr when there is none. Throws std::domain_error on
  /// the way through a value that is no container.
  const Spot* select(const std::string& path, const Spot& at, bool missing_is_error) {
    const Spot* from = &root_;
    std::size_t dots = 0;
    while (dots < path.size() && path[dots] == '.') ++dots;
    if (dots > 0) from = at.parent;
    for (std::size_t i = 1; i < dots && from != nullptr; ++i) from = from->parent;
    if (from == nullptr)
      throw Problem(fmt::format("ConfigKeyError: Error resolving key '{}'", path));
    const auto parts = split_key(path.substr(dots));
    const Spot* spot = from;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!spot->node->is_container()) {
        if (spot->node->kind == Kind::kNull || spot->node->is_missing()) return nullptr;
        throw std::domain_error(
            fmt::format("Error trying to access '{}': node '{}' is not a container and thus cannot "
                        "contain '{}'",
                        path, full_key(*spot), parts[i]));
      }
      spot = step(*spot, parts[i]);
      if (spot == nullptr) return nullptr;
      const bool last = i + 1 == parts.size();
      if (spot->node->is_missing() && (missing_is_error || !last)) {
        if (!missing_is_error) return nullptr;
        throw Problem(
            fmt::format("MissingMandatoryValue while resolving interpolation: Missing mandatory "
                        "value: {}; give it a value",
                        full_key(*spot)));
      }
      spot = &dereferenced(*spot);
    }
    return spot;
  }

  const Spot* step(const Spot& container, const std::string& key) {
    if (container.node->kind == Kind::kMap) {
      for (std::size_t i = 0; i < container.node->entries.size(); ++i) {
        const Node& name = container.node->entries[i].key;
        if (name.kind == Kind::kString && name.text == key) return &child_entry(container, i);
      }
      return nullptr;
    }
    const auto parsed = python_int(key);
    if (!parsed) throw Problem(fmt::format("Index '{}' (str) is not an int", key));
    const int64_t index = parsed->text.empty() ? parsed->integer : -1;
    const bool inside =
        index >= 0 && static_cast<std::size_t>(index) < container.node->items.size();
    return inside ? &child(container, static_cast<std::size_t>(index)) : nullptr;
  }

  const Spot& call(const Expr& expr, const Spot& at) {
    std::string name;
    for (std::size_t i = 0; i < expr.name_parts; ++i)
      name += text_part(expr.children[i], at, "the name of a resolver");
    std::vector<const Spot*> arguments;
    for (std::size_t i = expr.name_parts; i < expr.children.size(); ++i) {
      arguments.push_back(&dereferenced(evaluate(expr.children[i], at)));
    }
    struct Known {
      std::string_view name;
      std::size_t fewest;
      std::size_t most;
      const Spot& (Resolver::*run)(const std::vector<const Spot*>&, const Spot&);
    };
    static constexpr std::array<Known, 8> kKnown = {
        {{"oc.env", 1, 2, &Resolver::oc_env},
         {"oc.decode", 1, 1, &Resolver::oc_decode},
         {"oc.select", 1, 2, &Resolver::oc_select},
         {"oc.create", 1, 1, &Resolver::oc_create},
         {"oc.dict.keys", 1, 1, &Resolver::oc_dict_keys},
         {"oc.dict.values", 1, 1, &Resolver::oc_dict_values},
         {"now", 1, 1, &Resolver::now},
         {"hydra", 1, 2, &Resolver::hydra_value}}};
    for (const Known& known : kKnown) {
      if (known.name != name) continue;
      if (arguments.size() < known.fewest || arguments.size() > known.most) {
        throw Problem(fmt::format("{} takes {} argument{}, but {} are given", name,
                                  known.most == known.fewest
                                      ? fmt::format("{}", known.most)
                                      : fmt::format("{} or {}", known.fewest, known.most),
                                  known.most == 1 ? "" : "s", arguments.size()));
      }
      return (this->*known.run)(arguments, at);
    }
    throw Problem(
        fmt::format("Unsupported interpolation type {}; known are oc.env, oc.decode, oc.select, "
                    "oc.create, oc.dict.keys, oc.dict.values, now and hydra",
                    name));
  }

  static const std::string& text_argument(const std::string& resolver, const Spot& argument) {
    if (argument.node->kind == Kind::kString) return argument.node->text;
    throw Problem(fmt::format("`{}` requires a string as input, but obtained `{}` of type: {}",
                              resolver, shown(python_str(*argument.node)),
                              python_type(*argument.node)));
  }

  const Spot& oc_env(const std::vector<const Spot*>& arguments, const Spot& at) {
    const std::string& name = text_argument("oc.env", *arguments[0]);
    if (const char* value = std::getenv(name.c_str()))
      return temporary(Node::of(std::string(value)), at.parent, true);
    if (arguments.size() == 1)
      throw Problem(fmt::format(
          "Environment variable '{}' not found; set it or give a default: ${{oc.env:{},default}}",
          name, name));
    const Node& fallback = *arguments[1]->node;
    if (fallback.kind == Kind::kNull) return temporary(Node::null(), at.parent, true);
    return temporary(Node::of(python_str(fallback)), at.parent, true);
  }

  const Spot& oc_decode(const std::vector<const Spot*>& arguments, const Spot& at) {
    if (arguments[0]->node->kind == Kind::kNull) return *arguments[0];
    const std::string text = text_argument("oc.decode", *arguments[0]);
    return temporary(value_of(parse_element(text), at), at.parent, true);
  }

  const Spot& oc_create(const std::vector<const Spot*>& arguments, const Spot& at) {
    const Node& value = *arguments[0]->node;
    if (!value.is_container()) throw Problem("oc.create takes a map or a list");
    return temporary(finished(*arguments[0]), at.parent, true);
  }

  const Spot& oc_select(const std::vector<const Spot*>& arguments, const Spot& at) {
    const std::string& path = text_argument("oc.select", *arguments[0]);
    const Spot* found = nullptr;
    try {
      found = select(path, at, false);
    } catch (const std::domain_error&) {
      found = nullptr;  // as OmegaConf.select: a path through a scalar leads nowhere
    }
    if (found != nullptr && !found->node->is_missing()) return *found;
    if (arguments.size() == 2) return *arguments[1];
    return temporary(Node::null(), at.parent, true);
  }

  const Spot& selected_map(const std::string& resolver, const Spot& argument, const Spot& at) {
    const std::string& path = text_argument(resolver, argument);
    const Spot* found = nullptr;
    try {
      found = select(path, at, true);
    } catch (const std::domain_error&) {
      found = nullptr;
    }
    if (found == nullptr) throw Problem(fmt::format("Key not found: '{}'", path));
    if (found->node->kind != Kind::kMap) {
      throw Problem(fmt::format("`{}` cannot be applied to objects of type: {}", resolver,
                                python_type(*found->node)));
    }
    return *found;
  }

  const Spot& oc_dict_keys(const std::vector<const Spot*>& arguments, const Spot& at) {
    Node list = Node::list();
    for (const Entry& entry : selected_map("oc.dict.keys", *arguments[0], at).node->entries)
      list.items.push_back(entry.key);
    return temporary(std::move(list), at.parent, true);
  }

  /// A list of references, so that each value is resolved where it stands.
  const Spot& oc_dict_values(const std::vector<const Spot*>& arguments, const Spot& at) {
    const Spot& map = selected_map("oc.dict.values", *arguments[0], at);
    std::string path = arguments[0]->node->text;
    if (path.starts_with('.')) path.insert(0, 1, '.');
    Node list = Node::list();
    for (const Entry& entry : map.node->entries) {
      list.items.push_back(Node::of(fmt::format("${{{}.{}}}", path, python_str(entry.key))));
      list.items.back().place = at.node->place;
    }
    return temporary(std::move(list), at.parent, false);
  }

  const Spot& now(const std::vector<const Spot*>& arguments, const Spot& at) {
    const std::string& format = text_argument("now", *arguments[0]);
    static const std::time_t seconds =
        std::time(nullptr);  // one moment for the whole configuration
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 512> text{};
    const std::size_t n = std::strftime(text.data(), text.size(), format.c_str(), &local);
    return temporary(Node::of(std::string(text.data(), n)), at.parent, true);
  }

  const Spot& hydra_value(const std::vector<const Spot*>& arguments, const Spot& at) {
    constexpr int kDeepestNesting = 10;  // a setting of Hydra's that asks for itself
    const std::string& key = text_argument("hydra", *arguments[0]);
    if (nesting_ > kDeepestNesting)
      throw Problem(fmt::format("${{hydra:{}}}: Recursive interpolation detected", key));
    Node value;
    if (composed_ != nullptr)
      value = Resolver(*composed_, composed_, nesting_ + 1).select_from_root("hydra." + key);
    if (value.kind != Kind::kNull) return temporary(std::move(value), at.parent, true);
    if (arguments.size() == 2) return *arguments[1];
    throw Problem(fmt::format("${{hydra:{}}} has no value here; give one after a comma", key));
  }

  const Node* composed_;
  const int nesting_;
  const Spot root_;
  std::deque<Spot> spots_;
  std::deque<Node> temporaries_;
  std::vector<const Spot*> active_;
  std::size_t depth_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace

void resolve_interpolations(Node& root, const Node* composed) {
  Node resolved = Resolver(root, composed).resolve_all();
  root = std::move(resolved);
}

Node select_value(const Node& root, const std::string& path) {
  return Resolver(root, &root).select_from_root(path);
}

Node container_behind(const Node& root, const std::vector<std::string>& path) {
  try {
    Node node = Resolver(root, &root).behind(path);
    return node.is_container() ? node : Node::null();
  } catch (const UserError&) {
    return Node::null();
  }
}

void check_interpolations(const Node& root) {
  for (const Node& item : root.items) check_interpolations(item);
  for (const Entry& entry : root.entries) check_interpolations(entry.value);
  if (!root.is_interpolation()) return;
  try {
    parse_interpolated(root.text);
  } catch (const std::invalid_argument& e) {
    throw UserError(fmt::format("{}: GrammarParseError: {}; write \\${{ for a plain ${{",
                                root.place.str(), e.what()));
  }
}

}  // namespace ddp::train
