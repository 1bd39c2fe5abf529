// The grammar of values that OmegaConf's interpolations and Hydra's overrides share: text ->
// expression. Does not evaluate anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

enum class ExprKind {
  kLiteral,    ///< `literal`, a scalar
  kConcat,     ///< the texts of `children`, joined
  kList,       ///< `children`
  kMap,        ///< `children` under `keys`
  kReference,  ///< ${a.b}: `children` are literals ("a", ".", "[", "]") and expressions, joined to
               ///< a path
  kCall,     ///< ${name:args}: `children` are the name, made as that of a reference, and arguments
  kFunction  ///< name(args) in an override: `literal` is the name, `children` are the arguments,
             ///< `keys` their names, null for those without
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  Node literal;
  std::vector<Expr> children;
  std::vector<Node> keys;
  std::string source;  ///< As written, of an override's value and a function's argument.
};

// All throw std::invalid_argument with what the grammar expected where, and the fix.

/// A string with "${" in it.
Expr parse_interpolated(std::string_view text);

/// Parses a single value, as oc.decode does: a scalar, list, map or quoted text.
Expr parse_element(std::string_view text);

/// Parses the text after the "=" of an override; several values are a sweep over them.
std::vector<Expr> parse_override_values(std::string_view text);

}  // namespace ddp::train
