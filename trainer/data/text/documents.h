// Files of rows as documents: JSON, separated values, Parquet and Arrow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/left_out.h"
#include "trainer/data/text/table_file.h"
#include "trainer/storage/table_texts.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Whether the name is that of a file of rows: is_row_file() or is_arrow_table().
bool holds_documents(const std::string& file);

/// The files of rows that `path` means: one, a glob, or a folder's of one kind, unless it has .txt
/// files. Empty: it means other files, or none.
std::vector<std::string> find_documents(const std::string& path);

/// The texts in a column of such files, one at a time. Single-threaded.
class Documents {
 public:
  /// Unusable rows go to `left_out`, which must outlive it.
  Documents(std::vector<std::string> files, TableColumns columns, LeftOut& left_out);

  /// Returns false after the last one. Skips nulls and empty texts. Throws UserError with the file:
  /// not readable, broken, or without the column; RunError: the system failed to read it.
  bool next(std::string& document);
  /// "FILE:LINE" of the last one; of Parquet and Arrow its row.
  std::string place() const;
  /// Counts the last one, which could not be encoded, as unusable.
  void refuse(const std::string& reason) { left_out_.found(place() + ": " + reason); }

 private:
  void open_next();
  bool next_row(std::string& document);
  bool next_of_arrow(std::string& document);

  std::vector<std::string> files_;
  TableColumns columns_;
  LeftOut& left_out_;
  std::size_t file_ = 0;  // the next to open
  std::unique_ptr<TableReader> rows_;
  std::unique_ptr<ColumnTexts> column_texts_;
  std::vector<std::string> batch_;
  std::size_t at_ = 0;  // in batch_
  TableRow row_;
};

/// The tokens of a document and the end-of-text token; where the tokenizer has none, those of the
/// document and a line end.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, const std::string& document);

}  // namespace ddp::train
