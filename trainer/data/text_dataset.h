// A text, encoded once, split by position and only then cut into windows: no evaluation text is
// ever trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/token_sequence.h"
#include "trainer/data/token_windows.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Tokens in memory with what made them.
struct EncodedText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenSequence> tokens;
  int64_t characters_in_file = 0;
};

class TextDataset {
 public:
  /// Reads and encodes config.path. With `tokenizer` (of a snapshot) that one is used, otherwise
  /// the text's own. Throws UserError: not readable, not UTF-8, training part shorter than
  /// block_size + 1.
  explicit TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer = nullptr);

  const Tokenizer& tokenizer() const { return *text_.tokenizer; }
  const TokenSequence& tokens() const { return *text_.tokens; }
  /// Characters of the whole file, of which data_config.truncate leaves the tokens.
  int64_t characters_in_file() const { return text_.characters_in_file; }

  const TrainingWindows& training() const { return training_; }
  TokenRange training_range() const { return {0, split_}; }
  /// Empty when train_split is 1 or fewer than two tokens are left.
  const EvaluationWindows& evaluation() const { return evaluation_; }
  TokenRange evaluation_range() const { return {split_, tokens().size()}; }

 private:
  TextDataset(const DataConfig& config, EncodedText text);

  EncodedText text_;
  int64_t split_;
  TrainingWindows training_;
  EvaluationWindows evaluation_;
};

}  // namespace ddp::train
