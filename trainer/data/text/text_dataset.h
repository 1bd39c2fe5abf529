// A tokenized text, split by position before it is cut into windows: evaluation text is never
// trained on.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/config/data_config.h"
#include "trainer/data/data_source.h"
#include "trainer/data/tokens/token_sequence.h"
#include "trainer/data/tokens/token_windows.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

class TextDataset {
 public:
  /// Reads what open_data() finds for `config` and `tokenizer` (from a snapshot). Throws UserError:
  /// not readable, not UTF-8, fewer training samples than `batch_size`, with sizes that would do. A
  /// train_split of 0, which no configuration can have, leaves all for evaluation.
  explicit TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer = nullptr,
                       int64_t batch_size = 1);

  const Tokenizer& tokenizer() const { return *source_.tokenizer; }
  /// The tokens for training, and for evaluation without data_config.eval_path.
  const TokenSequence& tokens() const { return *source_.training; }
  /// How many tokens, from the start of tokens(), data_config.truncate keeps.
  int64_t used_tokens() const { return source_.training_tokens; }
  /// Characters of the whole text, of which data_config.truncate leaves the tokens; 0 for files of
  /// tokens.
  int64_t characters_in_file() const { return source_.characters_in_files; }
  /// LeftOut::text() of the unusable rows; "" if there are none.
  const std::string& left_out() const { return source_.left_out; }
  /// For the documents of files of rows; empty for others.
  const LengthCounts& lengths() const { return source_.lengths; }
  bool is_text() const { return source_.from_text; }

  const TokenWindows& training() const { return training_; }
  TokenRange training_range() const { return {0, split_}; }
  /// Empty when train_split is 1 or fewer than two tokens are left.
  const TokenWindows& evaluation() const { return evaluation_; }
  /// A range in the files of data_config.eval_path, if it is given, else in tokens().
  TokenRange evaluation_range() const;

 private:
  TextDataset(const DataConfig& config, DataSource source);
  [[noreturn]] void refuse(const DataConfig& config, int64_t batch_size) const;

  DataSource source_;
  int64_t split_;
  TokenWindows training_;
  TokenWindows evaluation_;
};

}  // namespace ddp::train
