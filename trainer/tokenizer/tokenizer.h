// The interface to tokenizers: text to token ids and back.
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

/// Immutable once created; every member may be called by several threads at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Its kind as in `data_config.tokenizer`: char, byte, bpe.
  virtual std::string_view kind() const = 0;
  /// Ids are in [0, size()).
  virtual int64_t size() const = 0;
  /// Throws UserError naming what cannot be encoded and where.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Returns the text of `tokens`: their bytes, joined, which need not be complete UTF-8.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  /// Returns the bytes that a token adds to an existing text.
  virtual std::string decode(int32_t token) const { return decode(std::span(&token, 1)); }
  /// The token that separates documents, such as GPT-2's <|endoftext|>.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  /// The token with this text in the vocabulary, such as [MASK].
  virtual std::optional<int32_t> token_of(std::string_view /*text*/) const { return std::nullopt; }
  /// The tokens in front of a text that a model continues, such as Llama's <s>; encode() adds
  /// none.
  virtual std::vector<int32_t> beginning() const { return {}; }
  /// The state from which tokenizer_from_state() recreates it: stored in snapshots and in a
  /// folder's tokenizer.json.
  virtual std::string state() const = 0;

  /// The largest length at which `text` may be cut: the tokens of both parts, whatever follows
  /// `text`, are those of the whole. 0 if the bytes at hand do not decide it.
  virtual std::size_t safe_prefix(std::string_view text) const = 0;
};

/// From Tokenizer::state(). Throws RunError if it is damaged.
std::unique_ptr<Tokenizer> tokenizer_from_state(const std::string& state);

/// Whether both have the same tokens under the same ids.
bool have_same_tokens(const Tokenizer& one, const Tokenizer& other);

}  // namespace ddp::train
