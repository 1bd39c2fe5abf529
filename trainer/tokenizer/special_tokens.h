// The special tokens that the files next to a tokenizer name: bos_token, eos_token and their like.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ddp::train {

/// bos_token, eos_token, unk_token and pad_token as transformers takes them: of `map`, a
/// special_tokens_map.json, and those it lacks of `config`, a tokenizer_config.json; of `config`
/// alone if it has added_tokens_decoder. Either may be null.
std::map<std::string, std::string> named_special_tokens(const nlohmann::json& config,
                                                        const nlohmann::json& map);

/// Returns eos_token of `folder`; "" if its files name none. Throws UserError: a file that cannot
/// be read, or is not a JSON object.
std::string end_of_text_in(const std::string& folder);

/// A tokenizer's state without the mark of the token that ends a text, which is trainer's own:
/// equal for tokenizers that differ in nothing else.
std::string without_end_mark(std::string state);

}  // namespace ddp::train
