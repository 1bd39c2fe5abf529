// A tokenizer as Python's tokenizers and transformers read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Contents by file name.
using TextFiles = std::map<std::string, std::string>;

/// tokenizer.json and tokenizer_config.json, for `wordpiece` vocab.txt as well: for `bpe` its own
/// state, for `char` and `byte` a model with one token per character or byte. `model_max_length`:
/// tokens that the model takes.
TextFiles tokenizer_files(const Tokenizer& tokenizer, int64_t model_max_length);

}  // namespace ddp::train
