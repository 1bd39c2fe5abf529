// Text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Immutable once made; every member may be called by several threads at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// As `data_config.tokenizer` names its kind: char, byte, bpe.
  virtual std::string_view kind() const = 0;
  /// Ids are in [0, size()).
  virtual int64_t size() const = 0;
  /// Throws UserError naming what cannot be encoded and where.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The text of `tokens`: their bytes, joined, which need not be whole UTF-8.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  /// The bytes that a token adds to a text that others began.
  virtual std::string decode(int32_t token) const { return decode(std::span(&token, 1)); }
  /// The token that separates documents, such as GPT-2's <|endoftext|>.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  /// The token that is written like that in the vocabulary, such as [MASK].
  virtual std::optional<int32_t> token_of(std::string_view /*text*/) const { return std::nullopt; }
  /// What belongs in front of a text that a model continues, such as Llama's <s>; encode() adds
  /// none.
  virtual std::vector<int32_t> beginning() const { return {}; }
  /// All that tokenizer_from_state() needs to make it again: what a snapshot holds and a folder's
  /// tokenizer.json contains.
  virtual std::string state() const = 0;

  /// The largest length at which `text` may be cut: the tokens of both parts, whatever follows
  /// `text`, are those of the whole. 0 when the bytes at hand do not tell.
  virtual std::size_t safe_prefix(std::string_view text) const = 0;
};

/// From Tokenizer::state(). Throws RunError when it is damaged.
std::unique_ptr<Tokenizer> tokenizer_from_state(const std::string& state);

/// Whether both have the same tokens under the same ids.
bool have_same_tokens(const Tokenizer& one, const Tokenizer& other);

}  // namespace ddp::train
