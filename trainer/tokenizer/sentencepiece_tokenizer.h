// BPE over characters as trained by SentencePiece and run by `tokenizers`: Llama 2, TinyLlama,
// Mistral.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe/bpe_spec.h"
#include "trainer/tokenizer/bpe/merge_table.h"
#include "trainer/tokenizer/bpe/scratch_pool.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Token for token as Python's `tokenizers` for all valid UTF-8. A byte that is not valid UTF-8 is
/// a character of its own, so that with byte fallback all bytes are restored.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `spec.sentencepiece` is set.
  explicit SentencePieceTokenizer(BpeSpec spec);

  std::string_view kind() const override { return "bpe"; }
  int64_t size() const override { return static_cast<int64_t>(spec_.vocabulary.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  /// Removes the space that encode() put in front.
  std::string decode(std::span<const int32_t> tokens) const override;
  /// Decodes one of several: keeps its space.
  std::string decode(int32_t token) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::optional<int32_t> token_of(std::string_view text) const override;
  std::vector<int32_t> beginning() const override { return spec_.beginning; }
  /// A tokenizer.json.
  std::string state() const override;
  /// 0: the space in front of a text is added only once.
  std::size_t safe_prefix(std::string_view /*text*/) const override { return 0; }

 private:
  std::string with_marks(std::string_view text, bool first) const;
  void encode_text(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void add_character(std::string_view character, bool& after_unknown,
                     std::vector<int32_t>& tokens) const;
  bool add_bytes(std::string_view character, std::vector<int32_t>& tokens) const;
  bool merges_across_words() const;

  BpeSpec spec_;
  SentencePieceRules rules_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<int32_t> byte_tokens_;  ///< -1: the byte has none.
  MergeTable merges_;
  AddedTokens added_;
  std::vector<std::string> bytes_;  // of each token
  bool by_words_;                   // a text can be encoded word by word
  std::optional<int32_t> end_of_text_;
  mutable ScratchPool scratch_;
};

}  // namespace ddp::train
