// The lines of texts as tokens, on which masked language models are trained.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/length_counts.h"
#include "trainer/data/text/documents.h"
#include "trainer/data/tokens/token_sequence.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// The tokens of a pair of texts, with what is between them.
struct JoinedPair {
  std::vector<int32_t> tokens;
  int64_t second = 0;  ///< Where the second text begins.
};
/// Cuts the longer text, of equal ones both in turn, until the whole has `most_tokens` tokens:
/// truncation "longest_first" of transformers.
JoinedPair joined_pair(std::span<const int32_t> first, std::span<const int32_t> second,
                       std::span<const int32_t> between, int64_t most_tokens);

/// Immutable; every member may be called by several threads at a time.
class TextLines {
 public:
  /// The lines of `text` with at least `min_characters` characters, the newline not counted, that
  /// have any token; each is cut after `most_tokens` tokens.
  TextLines(const Tokenizer& tokenizer, std::string_view text, int64_t min_characters,
            int64_t most_tokens);
  /// Each of `texts`, whatever its content, is a line; one without any token stays empty.
  TextLines(const Tokenizer& tokenizer, std::span<const std::string> texts, int64_t most_tokens);

  /// Each of `texts` joined to the one of `pairs` at its place.
  TextLines(const Tokenizer& tokenizer, std::span<const std::string> texts,
            std::span<const std::string> pairs, std::span<const int32_t> between,
            int64_t most_tokens);

  /// As the first, of `documents`, each of which is a line. Memory grows by 8 bytes a line: the
  /// tokens are in a file, see spill_tokens().
  TextLines(const Tokenizer& tokenizer, Documents& documents, int64_t min_characters,
            int64_t most_tokens);

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::vector<int32_t> operator[](int64_t line) const;
  int64_t length(int64_t line) const { return begin_of(line + 1) - begin_of(line); }  ///< Tokens.
  /// Where the second text of a pair begins among its tokens; empty without pairs.
  std::optional<int64_t> second(int64_t line) const;
  int64_t tokens() const { return tokens_->size(); }
  int64_t longest() const;                                  ///< Tokens of a line.
  const LengthCounts& lengths() const { return lengths_; }  ///< For lines before they are cut.
  int64_t lines_in_text() const { return lines_in_text_; }
  /// Equal for equal lines of tokens.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  int64_t begin_of(int64_t line) const {
    return line == 0 ? 0 : static_cast<int64_t>(ends_[static_cast<std::size_t>(line - 1)]);
  }
  /// The tokens of the next line; none if it is left out.
  std::vector<int32_t> line_of(const Tokenizer& tokenizer, std::string_view line,
                               int64_t min_characters, int64_t most_tokens);
  /// Cuts the tokens of the next line.
  void add(std::vector<int32_t>& tokens, int64_t most_tokens);
  void finish(std::vector<int32_t> tokens);
  void finish(std::unique_ptr<TokenSequence> tokens, const std::string& digest);

  std::unique_ptr<TokenSequence> tokens_;
  std::vector<std::size_t> ends_;
  std::vector<int64_t> seconds_;
  int64_t lines_in_text_ = 0;
  LengthCounts lengths_;
  std::string fingerprint_;
};

}  // namespace ddp::train
