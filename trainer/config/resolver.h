// What resolves the interpolations of one tree; interpolation.h is the way in.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/interpolation_parser.h"
#include "trainer/config/tree.h"

namespace ddp::train {

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

/// "a.b[0]", for messages.
std::string full_key(const Spot& spot);

/// Keeps every node that it makes until it is destroyed; references into them stay valid.
class Resolver {
 public:
  /// `composed` is a tree with the block `hydra`, or nullptr.
  Resolver(const Node& root, const Node* composed)
      : root_{&root, nullptr, "", false}, composed_{composed, nullptr, "", false} {}

  Node resolve_all();
  /// The node that OmegaConf.select finds from the root, lives as long as this; nullptr for none.
  const Node* node_at(const std::string& path);
  /// The node behind the one at the path, whose steps need no dereference.
  Node behind(const std::vector<std::string>& path);

 private:
  using Arguments = std::vector<const Spot*>;

  Node finished(const Spot& at);
  const Spot& add_spot(Spot spot) { return spots_.emplace_back(std::move(spot)); }

  const Spot& child(const Spot& list, std::size_t i);
  const Spot& child_entry(const Spot& map, std::size_t i);
  const Spot& temporary(Node node, const Spot* parent, bool final);
  [[noreturn]] void fail(const Spot& spot, const std::string& what) const;
  std::string chain_text() const;
  /// The value that an interpolation stands for, or the spot itself.
  const Spot& dereferenced(const Spot& spot);
  /// `at` is the node that holds the interpolation: its parent is where relative keys start.
  const Spot& evaluate(const Expr& expr, const Spot& at);
  /// A value on its own, resolved to the last leaf.
  Node value_of(const Expr& expr, const Spot& at) { return finished(evaluate(expr, at)); }

  std::string text_part(const Expr& part, const Spot& at, std::string_view what);
  std::string joined(const Expr& expr, const Spot& at);
  /// ${path}, seen from the container that holds `at`.
  const Spot& reference(const std::string& path, const Spot& at);
  /// The node at the path, dereferenced; nullptr when there is none. Throws std::domain_error on
  /// the way through a value that is no container.
  const Spot* select(const std::string& path, const Spot& at, bool missing_is_error);
  /// As OmegaConf.select: nullptr for ???, too, and for a way through a value.
  const Spot* selected(const std::string& path, const Spot& at);
  const Spot* step(const Spot& container, const std::string& key);
  const Spot& call(const Expr& expr, const Spot& at);
  static const std::string& text_argument(const std::string& resolver, const Spot& argument);
  const Spot& oc_env(const Arguments& arguments, const Spot& at);
  const Spot& oc_decode(const Arguments& arguments, const Spot& at);
  const Spot& oc_create(const Arguments& arguments, const Spot& at);
  const Spot& oc_select(const Arguments& arguments, const Spot& at);
  const Spot& selected_map(const std::string& resolver, const Spot& argument, const Spot& at);
  const Spot& oc_dict_keys(const Arguments& arguments, const Spot& at);
  /// A list of references, so that each value is resolved where it stands.
  const Spot& oc_dict_values(const Arguments& arguments, const Spot& at);
  const Spot& oc_deprecated(const Arguments& arguments, const Spot& at);
  const Spot& now(const Arguments& arguments, const Spot& at);
  const Spot& hydra_value(const Arguments& arguments, const Spot& at);

  const Spot root_;
  const Spot composed_;
  std::deque<Spot> spots_;
  std::deque<Node> temporaries_;
  std::vector<const Spot*> active_;
  std::size_t depth_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace ddp::train
