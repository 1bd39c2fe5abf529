// Tokens of a value in Hydra's override grammar and in OmegaConf's interpolation grammar, which
// share most of them.
#pragma once

#include <string>
#include <string_view>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// Hydra has functions and treats ${...} as text; OmegaConf parses its content.
enum class Grammar { kHydra, kOmegaConf };

enum class TokenType {
  kSign,  ///< One of ,[]{}:"' and in Hydra ()=, with the spaces that belong to it.
  kFloat,
  kInt,
  kBool,
  kNull,
  kOther,
  kId,
  kEscape,
  kSpace,
  kInterpolation,  ///< Hydra: all of ${...}; OmegaConf: ${
  kEnd             ///< The end, or a character outside of the grammar.
};

struct ValueToken {
  TokenType type = TokenType::kEnd;
  std::string_view text;
  char sign = '\0';  ///< kSign
};

/// The token at the start of `rest`: longest match, first type on a tie.
ValueToken next_value_token(std::string_view rest, Grammar grammar);

/// Whether the token can be a part of an unquoted value; the key of a map has no colon and no
/// interpolation.
bool is_primitive_part(const ValueToken& token, bool is_value);

/// The value of a single token: 1 is an int, 1.0 a float, true a bool, null is null, anything else
/// a string. Throws std::invalid_argument for an int beyond 64 bits.
Node typed_token(const ValueToken& token);

/// Returns the token as part of a longer text, escapes resolved.
std::string token_text(const ValueToken& token);

}  // namespace ddp::train
