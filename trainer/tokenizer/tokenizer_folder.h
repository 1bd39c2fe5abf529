// Loads tokenizers from files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// `path`: a folder with tokenizer.json, with vocab.json and merges.txt, or with BERT's vocab.txt;
/// or such a .json or .txt file. A folder's eos_token is its end of text.
/// Throws UserError with the file and what is wrong with it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);
/// The same for a key of the configuration, which the error begins with.
std::unique_ptr<Tokenizer> load_tokenizer(std::string_view key, const std::string& path);

/// Whether `folder` is a folder with a file that load_tokenizer() reads. False for an empty path.
bool holds_tokenizer(const std::string& folder);

/// Parses the text of a tokenizer.json: Tokenizer::state() or that of Python's `tokenizers`.
/// `name`: for messages. `folder`: its eos_token ends a text, if it names one; "": the token that
/// is marked so in the file, or has one of its usual names. Throws UserError.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name,
                                           const std::string& folder = "");

/// Returns 64 hexadecimal digits, equal for tokenizers that yield equal tokens, whatever their
/// files.
std::string tokenizer_fingerprint(const Tokenizer& tokenizer);

}  // namespace ddp::train
