// Tokens appended to a tokenizer: data_config.add_tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Returns `tokenizer` with `tokens` appended, as add_tokens() of transformers does; itself if it
/// ends in them. Throws UserError for data_config.add_tokens: a text that is a token already, a
/// tokenizer that takes none.
std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> tokenizer,
                                             const std::vector<std::string>& tokens);

}  // namespace ddp::train
