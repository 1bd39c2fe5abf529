// Cuts a file of rows into records: JSON lines, the elements of a JSON array, separated values, or
// the rows of Parquet and Arrow as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/storage/table_texts.h"

namespace ddp::train {

/// A defect after which no further row of a file can be found, so that it is never left out.
class BrokenFileError : public UserError {
 public:
  explicit BrokenFileError(const std::string& message)
      : UserError(message + "; no row from there on can be read, so none is skipped") {}
};

struct Record {
  std::string text;
  int64_t line = 0;  ///< Where it begins in the file, from 1; of Parquet and Arrow its row.
};

/// Holds one record at a time, or a batch of Parquet's or Arrow's, whatever the size of the file.
/// Single-threaded.
class RecordFile {
 public:
  /// The name gives the format: .csv, .tsv, is_arrow_table(), else JSON: an array of objects if it
  /// begins with one, else lines. Throws UserError: not a readable file, Parquet by its content
  /// only, or compressed; RunError: the system failed to read it.
  explicit RecordFile(std::string path);

  /// Returns false at the end of the file; skips blank lines of JSON, and a byte order mark. A
  /// number that JSON does not have is null. Lines
  /// end with LF, CR LF or CR. Throws "FILE:LINE: reason", UserError: not UTF-8, after which the
  /// next call continues; BrokenFileError: above 64 MB, or a malformed array; RunError: the system
  /// failed to read it.
  bool next(Record& record);
  /// "FILE:LINE: what"
  std::string at(int64_t line, const std::string& what) const;

  const std::string& path() const { return path_; }
  bool is_json() const { return separator_ == '\0'; }
  char separator() const { return separator_; }  ///< Between values; 0 for JSON.

 private:
  void look_at_start();
  bool read(Record& record);
  bool read_row(Record& record);
  bool read_line(Record& record);
  bool read_values(Record& record);
  bool read_element(Record& record);
  int skip_blank();
  int take();
  void append(Record& record, int c);
  [[noreturn]] void break_off(int64_t line, const std::string& what);
  [[noreturn]] void cannot_read() const;

  std::string path_;
  std::ifstream file_;
  std::streambuf* bytes_;
  char separator_ = '\0';
  char line_end_ = '\n';
  bool is_array_ = false;
  bool in_array_ = false;  // its opening bracket has been read
  bool done_ = false;
  int64_t line_ = 1;
  uint64_t offset_ = 0;
  uint64_t record_offset_ = 0;
  std::unique_ptr<ColumnTexts> table_;  // of Parquet and Arrow
  std::vector<std::string> rows_;       // the batch
  std::size_t row_ = 0;
};

}  // namespace ddp::train
