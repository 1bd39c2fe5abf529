// Tokens of an override's value, as Hydra's OverrideLexer cuts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/tree.h"

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
  kEnd
};

struct OverrideToken {
  TokenType type = TokenType::kEnd;
  std::string text;
};

/// Longest match, first rule on a tie, as ANTLR does; the last token is kEnd. Throws UserError on a
/// character that needs quotes.
std::vector<OverrideToken> lex_override_value(std::string_view value,
                                              const std::string& override_text);

/// One token alone: 1 is an int, 1.0 a float, true a bool, null is null, anything else a string.
Node typed_override_token(const OverrideToken& token);

/// The token as a part of a longer text, escapes resolved.
std::string override_token_text(const OverrideToken& token);

/// The text inside a quoted token: only the quote itself and trailing backslashes are unescaped.
std::string unquote_override(std::string_view quoted);

}  // namespace ddp::train
