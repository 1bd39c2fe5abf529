// Resolves the interpolations of one tree; interpolation.h is the entry point.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/hydra/interpolation/value_parser.h"
#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// A node and its path: relative interpolations count dots from their own position.
struct NodeRef {
  const Node* node = nullptr;
  const NodeRef* parent = nullptr;
  std::string key;
  bool final = false;  ///< The result of a resolver: a "${" in it is text.
};

/// An error in an interpolation; resolve() adds the place and the key.
class ResolveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "a.b[0]", for messages.
std::string full_key(const NodeRef& ref);

/// Owns every node that it creates until it is destroyed; references to them stay valid.
class Resolver {
 public:
  /// `composed` is a tree with the block `hydra`, or nullptr.
  Resolver(const Node& root, const Node* composed)
      : root_{&root, nullptr, "", false}, composed_{composed, nullptr, "", false} {}

  Node resolve_all();
  /// Returns the node that OmegaConf.select finds from the root, valid as long as this; or nullptr.
  const Node* node_at(const std::string& path);
  /// The node that the one at the path refers to, whose steps need no dereference.
  Node behind(const std::vector<std::string>& path);

  // For the functions, which see `at`, the node that holds the interpolation: relative keys start
  // at its parent. All throw ResolveError.

  const NodeRef& temporary(Node node, const NodeRef& at, bool final = true);
  /// Returns the node at the path, dereferenced; nullptr if there is none. A ??? is an error, or a
  /// node like any other.
  const NodeRef* select(const std::string& path, const NodeRef& at, bool missing_is_error);
  /// As OmegaConf.select: nullptr for ???, too.
  const NodeRef* selected(const std::string& path, const NodeRef& at);
  /// A value on its own, resolved to the last leaf.
  Node value_of(const Expr& expr, const NodeRef& at) { return finished(evaluate(expr, at)); }
  /// The block `hydra` of the composed tree. Without one, ${hydra:} is an error.
  const NodeRef& hydra_block();

 private:
  Node finished(const NodeRef& at);
  const NodeRef& add_ref(NodeRef ref) { return refs_.emplace_back(std::move(ref)); }
  const NodeRef& child(const NodeRef& list, std::size_t i);
  const NodeRef& child_entry(const NodeRef& map, std::size_t i);
  [[noreturn]] void fail(const NodeRef& ref, const std::string& what) const;
  std::string chain_text() const;
  /// The value that an interpolation refers to, or the ref itself.
  const NodeRef& dereferenced(const NodeRef& ref);
  const NodeRef& evaluate(const Expr& expr, const NodeRef& at);
  /// Returns the parts of a reference or name as one text; `what`: its kind, for messages.
  std::string joined(const Expr& expr, const NodeRef& at, std::string_view what);
  /// ${path}, seen from the container that holds `at`.
  const NodeRef& reference(const std::string& path, const NodeRef& at);
  const NodeRef* step(const NodeRef& container, const std::string& key);

  const NodeRef root_;
  const NodeRef composed_;
  std::deque<NodeRef> refs_;
  std::deque<Node> temporaries_;
  std::vector<const NodeRef*> active_;
  std::size_t depth_ = 0;
  std::size_t nodes_ = 0;
  std::size_t text_bytes_ = 0;
};

/// ${name:arguments}. Throws ResolveError, also for an unknown name.
const NodeRef& call_resolver(Resolver& resolver, const std::string& name,
                             const std::vector<const NodeRef*>& arguments, const NodeRef& at);

}  // namespace ddp::train
