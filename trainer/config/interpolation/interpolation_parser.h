// OmegaConf's interpolation grammar: text -> expression. Does not evaluate anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/yaml/tree.h"

namespace ddp::train {

enum class ExprKind {
  kLiteral,    ///< `literal`, a scalar
  kConcat,     ///< the texts of `children`, joined
  kList,       ///< `children`
  kMap,        ///< `children` under `keys`
  kReference,  ///< ${a.b}: `children` are literals ("a", ".", "[", "]") and expressions, joined to
               ///< a path
  kCall  ///< ${name:args}: `name_parts` first of the children (the resolver's name), then arguments
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  Node literal;
  std::vector<Expr> children;
  std::vector<Node> keys;
  std::size_t name_parts = 0;
};

/// A string with "${" in it. Throws std::invalid_argument that says what the grammar expected
/// where.
Expr parse_interpolated(std::string_view text);

/// One value alone, as oc.decode reads it: a scalar, list, map or quoted text. Throws
/// std::invalid_argument.
Expr parse_element(std::string_view text);

}  // namespace ddp::train
