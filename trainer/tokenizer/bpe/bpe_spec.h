// The parts of a BPE tokenizer, as in its files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {

/// GPT-2's name of the token between documents.
inline constexpr const char* kEndOfText = "<|endoftext|>";
/// Its names in Llama 3 and in Llama 2.
inline constexpr const char* kLlamaEndOfText = "<|end_of_text|>";
inline constexpr const char* kSentenceEnd = "</s>";

/// A text that is always one token, wherever it occurs, such as <|endoftext|>.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = true;
  bool normalized = false;   ///< These are looked for after the others, in normalized text.
  bool lstrip = false;       ///< White space before it belongs to it,
  bool rstrip = false;       ///< or after it.
  bool end_of_text = false;  ///< Marked as the token that ends a text, whatever its name.
};

/// `left` followed by `right` becomes `result`.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

/// BPE over characters, as trained by SentencePiece: spaces are written as U+2581.
struct SentencePieceRules {
  enum class Prepend {
    kNever,
    kAlways,   ///< A U+2581 before each text between added tokens,
    kMissing,  ///< where it does not begin with one,
    kFirst,    ///< as kMissing, at the start of the whole text only.
  };
  Prepend prepend = Prepend::kAlways;
  /// Spaces become marks before normalized added tokens are looked for; kAlways requires it.
  bool marks_first = true;
  bool split = false;              ///< A word begins at each U+2581. If not, the text is one word.
  bool byte_fallback = false;      ///< Unknown characters become their bytes: <0x0A>.
  bool fuse_unknown = false;       ///< Adjacent unknown characters are one unknown token.
  std::optional<int32_t> unknown;  ///< Without one, unknown characters have no token.
  bool strip_first_space = false;  ///< When tokens are decoded.
};

struct BpeSpec {
  /// By id, added tokens included; what merges build is written in the byte alphabet, or with
  /// U+2581 as `sentencepiece` says.
  std::vector<std::string> vocabulary;
  std::vector<Merge> merges;  ///< By rank: the first is applied first.
  std::vector<AddedToken> added;
  bool add_prefix_space = false;
  bool ignore_merges = false;  ///< A word that is in the vocabulary is one token.
  bool nfc = false;            ///< Text is first normalized to Unicode's form C.
  std::vector<WordStage> words = {WordStage::kGpt2};
  std::optional<SentencePieceRules> sentencepiece;  ///< Empty: byte-level.
  /// Tokens that the post-processor puts in front of a text, such as Llama's <s>.
  std::vector<int32_t> beginning;
  /// A JSON object: the parts of a tokenizer.json that are not GPT-2's, to be written back; else
  /// "".
  std::string file_parts = {};
};

}  // namespace ddp::train
