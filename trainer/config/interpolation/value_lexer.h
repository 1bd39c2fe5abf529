// Tokens of a value in Hydra's override grammar and in OmegaConf's interpolation grammar, which
// share most of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/yaml/tree.h"

namespace ddp::train {

enum class TokenType {
  kParenOpen,
  kComma,
  kParenClose,
  kBracketOpen,
  kBracketClose,
  kBraceOpen,
  kBraceClose,
  kColon,
  kEqual,
  kFloat,
  kInt,
  kBool,
  kNull,
  kOther,
  kId,
  kEscape,
  kSpace,
  kQuoted,
  kInterpolation,
  kQuoteOpen,
  kInterpolationOpen,
  kEnd
};

struct ValueToken {
  TokenType type = TokenType::kEnd;
  std::string text;
};

/// Hydra takes quotes, `${...}`, parentheses and `=` as tokens; OmegaConf opens a mode of its own
/// at a quote or `${`.
enum class Grammar { kHydra, kOmegaConf };

/// The token at the start of `rest`: longest match, first rule on a tie, as ANTLR does. kEnd with
/// an empty text at the end and at a character that the grammar does not know.
ValueToken next_value_token(std::string_view rest, Grammar grammar);

/// All of an override's value; the last token is kEnd. Throws UserError on a character that needs
/// quotes.
std::vector<ValueToken> lex_override_value(std::string_view value,
                                           const std::string& override_text);

/// Whether the token can be a part of an unquoted value; the key of a map has no colon and no
/// interpolation.
bool is_primitive_part(TokenType type, bool is_value);

/// One token alone: 1 is an int, 1.0 a float, true a bool, null is null, anything else a string.
/// Throws std::invalid_argument for an int beyond 64 bits.
Node typed_token(const ValueToken& token);

/// The token as a part of a longer text, escapes resolved.
std::string token_text(const ValueToken& token);

/// The text inside a quoted token: only the quote itself and trailing backslashes are unescaped.
std::string unquote_override(std::string_view quoted);

}  // namespace ddp::train
