// Reads pairs of answers to one prompt in TRL's forms and encodes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"
#include "trainer/data/left_out.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// A prompt with each of two answers.
struct EncodedPair {
  std::vector<int32_t> chosen;    ///< The prompt and the better answer.
  std::vector<int32_t> rejected;  ///< The prompt and the other one.
  std::size_t prompt = 0;         ///< Tokens of the prompt, with which both begin.
};

struct EncodedPairs {
  std::vector<EncodedPair> pairs;
  int64_t conversations = 0;  ///< How many of them are lists of messages.
};

/// Reads and encodes `path`: see read_chat_rows(). A row has
/// - `prompt`, `chosen` and `rejected`, texts: each answer ends with the end-of-text token;
/// - the same as lists of messages, or a list and two answers, rendered by `chat` (null: there is
///   none); `conversations` is another name of the prompt;
/// - `chosen` and `rejected` without a list as the prompt: what both begin with is the prompt.
/// The tokens are those of TRL's DPOTrainer: an answer begins where its tokens differ from the
/// prompt's own. Unusable rows go to `left_out`. Throws UserError.
EncodedPairs read_pairs(const std::string& path, const Tokenizer& tokenizer,
                        const ChatTemplate* chat, LeftOut& left_out);

}  // namespace ddp::train
