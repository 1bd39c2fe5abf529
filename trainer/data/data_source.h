// Opens the tokens specified by data_config, from texts or from files of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/config/data_config.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/tokens/token_sequence.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct DataSource {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenSequence> training;
  std::unique_ptr<TokenSequence> evaluation;  ///< Null: a part of `training` is for evaluation.
  int64_t training_tokens = 0;  ///< From the start of `training`; data_config.truncate leaves them.
  int64_t characters_in_files = 0;  ///< In the training text; 0 for files of tokens.
  bool from_text = false;
  std::string left_out;  ///< LeftOut::text() of the rows of all files; "" if all are used.
  LengthCounts lengths;  ///< For the documents in `training`, tokens; empty for texts and tokens.
};

/// Whether data_config.path specifies files of tokens. Also false if there are none.
bool holds_tokens(const DataConfig& config);

/// Throws UserError if data_config.text_column or on_bad_sample is given and none of the data has
/// rows.
void check_row_keys(const DataConfig& config);

/// Reads and encodes texts; only opens files of tokens. With `of_snapshot`, that tokenizer is used
/// where the configuration names none. Throws UserError with the key, the file and what is wrong
/// with it.
DataSource open_data(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot);

/// Returns the text of the files that `path` specifies, in sequence: a text file, a glob, or a
/// folder with its *.txt. Throws UserError with `key`, the file and the reason: it cannot be read
/// or is not UTF-8.
std::string read_utf8_text(const char* key, const std::string& path);
/// The same for plain texts only: throws UserError for a compressed file, and for rows, whose
/// syntax would be trained on.
std::string read_plain_text(const char* key, const std::string& path);

/// Returns one line of advice if the training text is large enough to be tokenized beforehand; else
/// "".
std::string large_text_note(const DataConfig& config);

}  // namespace ddp::train
