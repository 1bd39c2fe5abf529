// The tokens of a chat template, a text in the template language Jinja.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

struct TemplateToken {
  enum class Kind { kData, kStatement, kOutput, kEnd, kName, kString, kNumber, kSign, kEndOfFile };
  Kind kind = Kind::kEndOfFile;  ///< kStatement and kOutput open a tag, kEnd closes it.
  std::string text;              ///< For kString: its value.
  int line = 1;
};

/// With white space as in transformers: trim_blocks and lstrip_blocks are on. The last token is
/// kEndOfFile. Throws UserError: "line 3: ...".
std::vector<TemplateToken> template_tokens(std::string_view source);

[[noreturn]] void refuse_template(int line, const std::string& what);

}  // namespace ddp::train
