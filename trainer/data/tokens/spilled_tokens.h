// Tokens in a file without a name, so that memory does not grow with their number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/data/tokens/token_sequence.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Calls `next` until it returns false; the result has what it returned, one after the other. Takes
/// 2 or 4 bytes a token in the folder for temporary files (TMPDIR), which the system frees when the
/// result goes. Its fingerprint is of all tokens. Throws UserError: there is no such folder;
/// NoSpaceError: its disk is full.
std::unique_ptr<TokenSequence> spill_tokens(const Tokenizer& tokenizer,
                                            const std::function<bool(std::vector<int32_t>&)>& next);

}  // namespace ddp::train
