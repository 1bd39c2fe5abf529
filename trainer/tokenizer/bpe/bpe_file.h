// Files of byte-level BPE tokenizers: tokenizer.json of Hugging Face's `tokenizers`, and GPT-2's
// vocab.json with merges.txt.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// `name` is used in messages. Throws UserError naming what is damaged, or what this trainer would
/// not reproduce (another model, normaliser or pre-tokeniser).
BpeSpec read_tokenizer_json(const nlohmann::json& root, const std::string& name);

/// <|endoftext|>, if it is in the vocabulary, is the special token, as in `transformers`.
BpeSpec parse_vocab_and_merges(std::string_view vocab, const std::string& vocab_name,
                               std::string_view merges, const std::string& merges_name);

/// The vocabulary and the added tokens of a tokenizer.json alone, whatever its model: no merges.
BpeSpec read_vocabulary_and_added(const nlohmann::json& root, const std::string& name);

// In the format of tokenizer.json.
nlohmann::ordered_json vocabulary_json(const std::vector<std::string>& tokens);
nlohmann::ordered_json added_tokens_json(const std::vector<AddedToken>& tokens);

/// Loaded by Tokenizer.from_file() of Python's `tokenizers`.
std::string tokenizer_json(const BpeSpec& spec);

}  // namespace ddp::train
