// What a byte-level BPE tokenizer is made of, as its files hold it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

/// What GPT-2 calls the token between documents.
inline constexpr const char* kEndOfText = "<|endoftext|>";
/// Llama 3's name of it.
inline constexpr const char* kLlamaEndOfText = "<|end_of_text|>";

/// A text that is always one token, wherever it stands, such as <|endoftext|>.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = true;
  bool normalized = false;  ///< These are looked for after the others.
};

/// `left` followed by `right` becomes `result`.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

struct BpeSpec {
  /// By id, added tokens included; what merges build is written in the byte alphabet.
  std::vector<std::string> vocabulary;
  std::vector<Merge> merges;  ///< By rank: the first is done first.
  std::vector<AddedToken> added;
  bool add_prefix_space = false;
  bool ignore_merges = false;  ///< A word that is in the vocabulary is one token.
  /// The pre_tokenizer (JSON) of a file whose words are not GPT-2's, such as Llama 3's; else "". It
  /// can be decoded and trained on, but no text be encoded.
  std::string other_words = {};
};

}  // namespace ddp::train
