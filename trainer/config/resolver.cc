#include "trainer/config/resolver.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/message.h"
#include "trainer/config/python_number.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepest = 200;          // references that follow each other
constexpr std::size_t kMostNodes = 1'000'000;  // of the resolved tree

/// "a.b[0][c]" -> a, b, 0, c. As in OmegaConf what stands behind a bracket without a dot is lost.
std::vector<std::string> split_key(const std::string& path) {
  std::size_t at = std::min(path.find_first_of(".["), path.size());
  std::vector<std::string> parts;
  if (at > 0 || !path.starts_with('[')) parts.push_back(path.substr(0, at));
  while (at < path.size()) {
    const std::size_t close = path[at] == '[' ? path.find(']', at) : std::string::npos;
    if (path[at] == '.') {
      const std::size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
      parts.push_back(path.substr(at + 1, end - at - 1));
      at = end;
    } else if (close != std::string::npos) {
      parts.push_back(path.substr(at + 1, close - at - 1));
      at = close + 1;
    } else {
      ++at;
    }
  }
  return parts;
}

/// The root of the tree that the spot is in.
const Spot& top_of(const Spot& spot) {
  const Spot* top = &spot;
  while (top->parent != nullptr) top = top->parent;
  return *top;
}

}  // namespace

std::string full_key(const Spot& spot) {
  if (spot.parent == nullptr) return "";
  const std::string before = full_key(*spot.parent);
  if (spot.parent->node->kind == Kind::kList) return fmt::format("{}[{}]", before, spot.key);
  return before.empty() ? spot.key : before + "." + spot.key;
}

Node Resolver::resolve_all() {
  Node out = *root_.node;
  for (std::size_t i = 0; i < out.entries.size(); ++i) {
    if (out.entries[i].key.text != "hydra") out.entries[i].value = finished(child_entry(root_, i));
  }
  return out;
}

const Node* Resolver::node_at(const std::string& path) {
  const Spot at{nullptr, &root_, "", false};
  try {
    const Spot* found = selected(path, at);
    return found == nullptr ? nullptr : found->node;
  } catch (const Problem& e) {
    throw UserError(path + ": " + e.what());
  }
}

Node Resolver::behind(const std::vector<std::string>& path) {
  const Spot* spot = &root_;
  for (const std::string& part : path) {
    spot = step(*spot, part);
    if (spot == nullptr) return Node::null();
  }
  return *dereferenced(*spot).node;
}

Node Resolver::finished(const Spot& at) {
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

const Spot& Resolver::child(const Spot& list, std::size_t i) {
  return add_spot({&list.node->items[i], &list, std::to_string(i), list.final});
}

const Spot& Resolver::child_entry(const Spot& map, std::size_t i) {
  const Entry& entry = map.node->entries[i];
  return add_spot({&entry.value, &map, python_str(entry.key), map.final});
}

const Spot& Resolver::temporary(Node node, const Spot* parent, bool final) {
  temporaries_.push_back(std::move(node));
  return add_spot({&temporaries_.back(), parent, "", final});
}

void Resolver::fail(const Spot& spot, const std::string& what) const {
  const std::string key = full_key(spot);
  const std::string place = spot.node->place.str();
  throw UserError(fmt::format("{}{}{}: {}", place, place.empty() ? "" : ": ", key, what));
}

std::string Resolver::chain_text() const {
  if (active_.size() < 2) return "";
  std::string text;
  for (const Spot* spot : active_) text += (text.empty() ? "" : " -> ") + full_key(*spot);
  return " (" + text + ")";
}

const Spot& Resolver::dereferenced(const Spot& spot) {
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

const Spot& Resolver::evaluate(const Expr& expr, const Spot& at) {
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

std::string Resolver::text_part(const Expr& part, const Spot& at, std::string_view what) {
  const Node& node = *evaluate(part, at).node;
  if (node.kind != Kind::kString) {
    throw Problem(
        fmt::format("an interpolation that denotes {} should return a string, but instead "
                    "returned `{}` of type `{}`",
                    what, shown(python_str(node)), python_type(node)));
  }
  return node.text;
}

std::string Resolver::joined(const Expr& expr, const Spot& at) {
  std::string path;
  for (const Expr& part : expr.children) path += text_part(part, at, "a config key");
  return path;
}

const Spot& Resolver::reference(const std::string& path, const Spot& at) {
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

const Spot* Resolver::select(const std::string& path, const Spot& at, bool missing_is_error) {
  const Spot* from = &top_of(at);
  std::size_t dots = 0;
  while (dots < path.size() && path[dots] == '.') ++dots;
  if (dots > 0) from = at.parent;
  for (std::size_t i = 1; i < dots && from != nullptr; ++i) from = from->parent;
  if (from == nullptr) throw Problem(fmt::format("ConfigKeyError: Error resolving key '{}'", path));
  if (dots == path.size()) return from;
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

const Spot* Resolver::selected(const std::string& path, const Spot& at) {
  try {
    const Spot* found = select(path, at, false);
    return found == nullptr || found->node->is_missing() ? nullptr : found;
  } catch (const std::domain_error&) {
    return nullptr;
  }
}

const Spot* Resolver::step(const Spot& container, const std::string& key) {
  if (container.node->kind == Kind::kMap) {
    for (std::size_t i = 0; i < container.node->entries.size(); ++i) {
      const Node& name = container.node->entries[i].key;
      if (name.kind == Kind::kString && name.text == key) return &child_entry(container, i);
    }
    return nullptr;
  }
  const auto parsed = python_int(key);
  if (!parsed) throw Problem(fmt::format("Index '{}' (str) is not an int", key));
  const bool inside =
      *parsed >= 0 && static_cast<std::size_t>(*parsed) < container.node->items.size();
  return inside ? &child(container, static_cast<std::size_t>(*parsed)) : nullptr;
}

}  // namespace ddp::train
