// Cuts a file of rows into records: JSON lines, the elements of a JSON array, or separated values.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace ddp::train {

struct Record {
  std::string text;
  int64_t line = 0;  ///< Where it begins in the file, from 1.
};

/// Holds one record at a time, whatever the size of the file. Single-threaded.
class RecordFile {
 public:
  /// The name gives the format: .csv, .tsv, else JSON: an array of objects if it begins with one,
  /// else lines. Throws UserError: not a readable file, or Parquet or compressed by its content.
  explicit RecordFile(std::string path);

  /// Returns false at the end of the file; skips blank lines of JSON, and a byte order mark. Lines
  /// end with LF, CR LF or CR. Throws UserError "FILE:LINE: reason": not UTF-8, above 64 MB, an
  /// array that is cut short. The next call continues after a record that is not UTF-8.
  bool next(Record& record);
  /// "FILE:LINE: what"
  std::string at(int64_t line, const std::string& what) const;

  const std::string& path() const { return path_; }
  bool is_json() const { return separator_ == '\0'; }
  char separator() const { return separator_; }  ///< Between values; 0 for JSON.

 private:
  void look_at_start();
  bool read(Record& record);
  bool read_line(Record& record);
  bool read_values(Record& record);
  bool read_element(Record& record);
  int skip_blank();
  int take();
  void append(Record& record, int c);
  [[noreturn]] void end_with(int64_t line, const std::string& what);

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
};

}  // namespace ddp::train
