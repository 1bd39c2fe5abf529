// Exports a tokenizer for Python's tokenizers and transformers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Contents by file name.
using TextFiles = std::map<std::string, std::string>;

/// A model's chat format, for readers of its folder.
struct ChatFacts {
  std::string source;                          ///< Source of the chat template.
  std::map<std::string, std::string> special;  ///< "bos_token" -> "<s>"
  std::optional<int32_t> end_of_turn;          ///< The token after which generation ends.
};

/// tokenizer.json and tokenizer_config.json, for `wordpiece` vocab.txt as well: for `bpe` its own
/// state, for `char` and `byte` a model with one token per character or byte. `model_max_length`:
/// tokens that the model takes. With `chat` its template is in both places where transformers has
/// looked for it: tokenizer_config.json (all versions) and chat_template.jinja (from 4.50 on, where
/// it comes first). `of_bert`: with the special tokens of BERT or RoBERTa.
TextFiles tokenizer_files(const Tokenizer& tokenizer, int64_t model_max_length,
                          const std::optional<ChatFacts>& chat, bool of_bert);

}  // namespace ddp::train
