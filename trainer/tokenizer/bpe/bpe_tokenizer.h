// Byte-level BPE, as of GPT-2, Llama 3, SmolLM2 and Qwen: any bytes have tokens, and
// decode(encode(bytes)) is bytes, or with `nfc` their normal form.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe/bpe_spec.h"
#include "trainer/tokenizer/bpe/merge_table.h"
#include "trainer/tokenizer/bpe/pair_merging.h"
#include "trainer/tokenizer/bpe/scratch_pool.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Token for token as Python's `tokenizers` (without special tokens that a post-processor adds) for
/// all valid UTF-8; `tokenizers` does not accept other bytes. The text of an added token, special
/// or not, becomes that token.
class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec);

  std::string_view kind() const override { return "bpe"; }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  using Tokenizer::decode;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::optional<int32_t> token_of(std::string_view text) const override;
  std::vector<int32_t> beginning() const override { return spec_.beginning; }
  /// A tokenizer.json.
  std::string state() const override;
  std::size_t safe_prefix(std::string_view text) const override;

  const BpeSpec& spec() const { return spec_; }

 private:
  void encode_text(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;
  /// Appends the tokens of all words of `text`, which is split as the spec says. Throws UserError
  /// naming a byte that is not in the vocabulary.
  void encode_words(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void split_to_bytes(std::string_view word, std::vector<int32_t>& tokens) const;

  BpeSpec spec_;
  MergeTable merges_;
  std::array<int32_t, 256> token_of_byte_{};
  std::unordered_map<std::string, int32_t> whole_words_;  ///< For ignore_merges: by their bytes.
  AddedTokens added_;
  std::vector<std::string> bytes_;  // of each token
  std::optional<int32_t> end_of_text_;
  mutable ScratchPool scratch_;
};

/// The token between documents: the marked one, else by its usual names; nullopt if none is among
/// the added tokens.
std::optional<int32_t> end_of_text_of(const BpeSpec& spec);
/// Makes the token with this text the one between documents, and an added one; "", or a text that
/// is not in the vocabulary, changes nothing.
void set_end_of_text(BpeSpec& spec, const std::string& text);
/// The added token with this text.
std::optional<int32_t> added_token_of(const BpeSpec& spec, std::string_view text);

}  // namespace ddp::train
