// BERT's wordpieces: the words of BERT's basic tokenisation, each split greedily into the longest
// pieces in the vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe/bpe_spec.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/wordpiece/bert_words.h"

namespace ddp::train {

/// The special tokens, named as in BERT's vocabularies.
inline constexpr const char* kPadToken = "[PAD]";
inline constexpr const char* kUnknownToken = "[UNK]";
inline constexpr const char* kFirstToken = "[CLS]";
inline constexpr const char* kLastToken = "[SEP]";
inline constexpr const char* kMaskToken = "[MASK]";

/// The texts of a vocabulary's special tokens.
struct BertTokenNames {
  const char* pad;
  const char* first;
  const char* last;
  const char* mask;
  const char* unknown;
};
/// BERT's, [CLS], or RoBERTa's, <s>, where the vocabulary has that.
const BertTokenNames& token_names_of(const Tokenizer& tokenizer);

struct WordpieceSpec {
  std::vector<std::string> vocabulary;  ///< By id; "##" before pieces that continue a word.
  std::vector<AddedToken> added;        ///< Found in the text as it is, [MASK] among them.
  BertWordOptions words;
  std::string unknown = kUnknownToken;
  std::string prefix = "##";
  int64_t longest_word = 100;  ///< Characters; longer words are unknown.
};

/// Token for token as `tokenizers`' BertWordPieceTokenizer without [CLS] and [SEP].
class WordpieceTokenizer : public Tokenizer {
 public:
  /// Throws UserError if the vocabulary has no unknown token.
  explicit WordpieceTokenizer(WordpieceSpec spec);

  std::string_view kind() const override { return "wordpiece"; }
  int64_t size() const override { return static_cast<int64_t>(spec_.vocabulary.size()); }
  /// Throws UserError if `text` is not valid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const override;
  /// Words with a space between; accents and capitals are lost.
  std::string decode(std::span<const int32_t> tokens) const override;
  using Tokenizer::decode;
  /// A tokenizer.json.
  std::optional<int32_t> token_of(std::string_view text) const override;
  std::string state() const override;
  std::size_t safe_prefix(std::string_view text) const override;

  const WordpieceSpec& spec() const { return spec_; }

 private:
  struct Piece {
    int32_t token = 0;
    std::size_t bytes = 0;  ///< 0: there is none.
  };
  Piece longest_piece(std::string_view word, std::size_t at) const;
  void add_pieces(std::string_view word, std::vector<int32_t>& out) const;

  WordpieceSpec spec_;
  AddedTokens added_;
  std::unordered_map<std::string_view, int32_t> starts_;  ///< Views into the vocabulary.
  std::unordered_map<std::string_view, int32_t> continuations_;
  int32_t unknown_ = 0;
  std::size_t longest_piece_ = 0;  ///< Bytes.
};

}  // namespace ddp::train
