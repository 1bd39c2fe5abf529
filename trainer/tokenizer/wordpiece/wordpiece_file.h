// Files of wordpiece tokenizers: tokenizer.json of Hugging Face's `tokenizers`, and BERT's
// vocab.txt.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {

/// Whether this is the tokenizer.json of a wordpiece tokenizer.
bool is_wordpiece_json(const nlohmann::json& root);

/// `name` is used in messages. Throws UserError naming what is damaged, or what this trainer
/// would not reproduce (another normaliser or pre-tokeniser).
WordpieceSpec read_wordpiece_json(const nlohmann::json& root, const std::string& name);

/// One token a line, the first with id 0; BERT's special tokens among them are found in a text.
WordpieceSpec parse_vocab_txt(std::string_view text, const std::string& name);

/// The settings in the tokenizer_config.json next to a vocab.txt: do_lower_case, strip_accents,
/// tokenize_chinese_chars.
BertWordOptions read_word_options(const nlohmann::json& config);

/// Loaded by Tokenizer.from_file() of Python's `tokenizers`, which then puts [CLS] and [SEP] around
/// a text.
std::string wordpiece_json(const WordpieceSpec& spec);
std::string vocab_txt(const WordpieceSpec& spec);

/// Returns BERT's special tokens in `vocabulary`, with their ids.
std::vector<AddedToken> special_tokens(const std::vector<std::string>& vocabulary);

}  // namespace ddp::train
