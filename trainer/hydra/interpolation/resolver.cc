#include "trainer/hydra/interpolation/resolver.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/hydra/yaml/python_number.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepestReference = 200;       // references that follow each other
constexpr std::size_t kMostResolvedNodes = 200'000;  // of the resolved tree
constexpr std::size_t kMostTextBytes = 16 << 20;     // of all that interpolations make

/// "a.b[0][c]" -> a, b, 0, c. As in OmegaConf, text after a bracket without a dot is lost.
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

/// The root of the tree that the ref is in.
const NodeRef& top_of(const NodeRef& ref) {
  const NodeRef* top = &ref;
  while (top->parent != nullptr) top = top->parent;
  return *top;
}

[[noreturn]] void fail_large() {
  throw UserError("interpolations make the configuration too large; use fewer");
}

/// Why there is no such key, and what was probably meant; relative keys are not searched for.
std::string hint_for(const std::string& path, const Node& root) {
  const Node* node = &root;
  std::string prefix;
  for (const std::string& part : split_key(path)) {
    if (!node->is_container())
      return fmt::format("'{}' is a value; check the name", prefix.substr(0, prefix.size() - 1));
    const Node* next = node->find(part);
    if (next == nullptr) {
      const std::string near = path.starts_with('.') ? "" : nearest(part, node->key_texts());
      if (!near.empty()) return fmt::format("did you mean ${{{}{}}}?", prefix, near);
      break;
    }
    node = next;
    prefix += part + ".";
  }
  return "check the key, or write \\${ for a literal ${";
}

}  // namespace

std::string full_key(const NodeRef& ref) {
  if (ref.parent == nullptr) return "";
  const std::string before = full_key(*ref.parent);
  if (ref.parent->node->kind == Kind::kList) return fmt::format("{}[{}]", before, ref.key);
  return before.empty() ? ref.key : before + "." + ref.key;
}

Node Resolver::resolve_all() {
  Node out = *root_.node;
  for (std::size_t i = 0; i < out.entries.size(); ++i) {
    if (out.entries[i].key.text != "hydra") out.entries[i].value = finished(child_entry(root_, i));
  }
  return out;
}

const Node* Resolver::node_at(const std::string& path) {
  const NodeRef at{nullptr, &root_, "", false};
  try {
    const NodeRef* found = selected(path, at);
    return found == nullptr ? nullptr : found->node;
  } catch (const ResolveError& e) {
    throw UserError(path + ": " + e.what());
  }
}

Node Resolver::behind(const std::vector<std::string>& path) {
  const NodeRef* ref = &root_;
  for (const std::string& part : path) {
    ref = step(*ref, part);
    if (ref == nullptr) return Node::null();
  }
  return *dereferenced(*ref).node;
}

Node Resolver::finished(const NodeRef& at) {
  if (++nodes_ > kMostResolvedNodes) fail_large();
  const NodeRef& ref = dereferenced(at);
  Node out = *ref.node;
  if (!at.node->place.str().empty()) out.place = at.node->place;
  if (!out.is_container()) return out;
  // A map that reaches itself through another one has no end.
  if (++depth_ > kDeepestReference) fail(at, "interpolation cycle" + chain_text() + "; break it");
  for (std::size_t i = 0; i < out.items.size(); ++i) out.items[i] = finished(child(ref, i));
  for (std::size_t i = 0; i < out.entries.size(); ++i) {
    out.entries[i].value = finished(child_entry(ref, i));
  }
  --depth_;
  return out;
}

const NodeRef& Resolver::child(const NodeRef& list, std::size_t i) {
  return add_ref({&list.node->items[i], &list, std::to_string(i), list.final});
}

const NodeRef& Resolver::child_entry(const NodeRef& map, std::size_t i) {
  const Entry& entry = map.node->entries[i];
  return add_ref({&entry.value, &map, python_str(entry.key), map.final});
}

const NodeRef& Resolver::temporary(Node node, const NodeRef& at, bool final) {
  text_bytes_ += sizeof(Node) + node.text.size();
  if (text_bytes_ > kMostTextBytes) fail_large();
  temporaries_.push_back(std::move(node));
  return add_ref({&temporaries_.back(), at.parent, "", final});
}

const NodeRef& Resolver::hydra_block() {
  const NodeRef* block = composed_.node == nullptr ? nullptr : step(composed_, "hydra");
  if (block == nullptr)
    throw ResolveError("the block hydra is not known here; write the value out");
  return *block;
}

void Resolver::fail(const NodeRef& ref, const std::string& what) const {
  const std::string key = full_key(ref);
  const std::string place = ref.node->place.str();
  throw UserError(fmt::format("{}{}{}: {}", place, place.empty() ? "" : ": ", key, what));
}

std::string Resolver::chain_text() const {
  if (active_.size() < 2) return "";
  std::string text;
  for (const NodeRef* ref : active_) text += (text.empty() ? "" : " -> ") + full_key(*ref);
  return " (" + text + ")";
}

const NodeRef& Resolver::dereferenced(const NodeRef& ref) {
  if (ref.final || !ref.node->is_interpolation()) return ref;
  for (const NodeRef* before : active_) {
    if (before->node != ref.node) continue;
    active_.push_back(&ref);
    const std::string chain = chain_text();
    active_.clear();
    fail(ref, "interpolation cycle" + chain + "; break it");
  }
  if (active_.size() >= kDeepestReference)
    fail(ref, "interpolations are nested too deeply; simplify them");
  active_.push_back(&ref);
  const NodeRef* result = nullptr;
  try {
    result = &evaluate(parse_interpolated(ref.node->text), ref);
  } catch (const ResolveError& e) {
    fail(ref, e.what() + std::string(active_.size() > 1 ? chain_text() : ""));
  } catch (const std::invalid_argument& e) {
    fail(ref, e.what());
  }
  active_.pop_back();
  return *result;
}

const NodeRef& Resolver::evaluate(const Expr& expr, const NodeRef& at) {
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return temporary(expr.literal, at);
    case ExprKind::kConcat: {
      std::string text;
      for (const Expr& part : expr.children) text += python_str(*evaluate(part, at).node);
      return temporary(Node::of(std::move(text)), at);
    }
    case ExprKind::kList: {
      Node list = Node::list();
      for (const Expr& item : expr.children) list.items.push_back(value_of(item, at));
      return temporary(std::move(list), at);
    }
    case ExprKind::kMap: {
      Node map = Node::map();
      for (std::size_t i = 0; i < expr.keys.size(); ++i) {
        set_entry(map, expr.keys[i], value_of(expr.children[i], at));
      }
      return temporary(std::move(map), at);
    }
    case ExprKind::kReference:
      return reference(joined(expr, at, "a config key"), at);
    case ExprKind::kCall: {
      std::vector<const NodeRef*> arguments;
      for (std::size_t i = 1; i < expr.children.size(); ++i)
        arguments.push_back(&dereferenced(evaluate(expr.children[i], at)));
      const std::string name = joined(expr.children.front(), at, "the name of a resolver");
      return call_resolver(*this, name, arguments, at);
    }
    case ExprKind::kFunction:
      break;
  }
  throw ResolveError("functions are for overrides; use a resolver");
}

std::string Resolver::joined(const Expr& expr, const NodeRef& at, std::string_view what) {
  std::string text;
  for (const Expr& part : expr.children) {
    const Node& node = *evaluate(part, at).node;
    if (node.kind != Kind::kString) {
      throw ResolveError(fmt::format("{} must be a string, not '{}' ({}); quote it", what,
                                     shown(python_str(node)), python_type(node)));
    }
    text += node.text;
  }
  return text;
}

const NodeRef& Resolver::reference(const std::string& path, const NodeRef& at) {
  const NodeRef* found = select(path, at, true);
  if (found == nullptr)
    throw ResolveError(fmt::format("interpolation key '{}' not found; {}", path,
                                   hint_for(path, *top_of(at).node)));
  for (const NodeRef* above = at.parent; above != nullptr; above = above->parent) {
    if (above->node == found->node)
      throw ResolveError("it refers to a section that contains it; refer to a single key");
  }
  return *found;
}

const NodeRef* Resolver::select(const std::string& path, const NodeRef& at, bool missing_is_error) {
  const NodeRef* from = &top_of(at);
  std::size_t dots = 0;
  while (dots < path.size() && path[dots] == '.') ++dots;
  if (dots > 0) from = at.parent;
  for (std::size_t i = 1; i < dots && from != nullptr; ++i) from = from->parent;
  if (from == nullptr)
    throw ResolveError(
        fmt::format("'{}' goes above the top of the configuration; use fewer dots", path));
  if (dots == path.size()) return from;
  const auto parts = split_key(path.substr(dots));
  const NodeRef* ref = from;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ref = ref->node->is_container() ? step(*ref, parts[i]) : nullptr;
    if (ref == nullptr) return nullptr;
    const bool last = i + 1 == parts.size();
    if (ref->node->is_missing() && missing_is_error)
      throw ResolveError(fmt::format("{} is still ??? (no value); give it one", full_key(*ref)));
    if (ref->node->is_missing() && !last) return nullptr;
    ref = &dereferenced(*ref);
  }
  return ref;
}

const NodeRef* Resolver::selected(const std::string& path, const NodeRef& at) {
  const NodeRef* found = select(path, at, false);
  return found == nullptr || found->node->is_missing() ? nullptr : found;
}

const NodeRef* Resolver::step(const NodeRef& container, const std::string& key) {
  if (container.node->kind == Kind::kMap) {
    for (std::size_t i = 0; i < container.node->entries.size(); ++i) {
      const Node& name = container.node->entries[i].key;
      if (name.kind == Kind::kString && name.text == key) return &child_entry(container, i);
    }
    return nullptr;
  }
  const auto parsed = python_int(key);
  if (!parsed) throw ResolveError(fmt::format("'{}' is not a list index; write a number", key));
  const bool inside =
      *parsed >= 0 && static_cast<std::size_t>(*parsed) < container.node->items.size();
  return inside ? &child(container, static_cast<std::size_t>(*parsed)) : nullptr;
}

}  // namespace ddp::train
