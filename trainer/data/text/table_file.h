// Reads tables of texts: comma- or tab-separated values (RFC 4180), JSON objects, one per line or
// in an array, or Parquet and Arrow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/text/record_file.h"

namespace ddp::train {

/// The columns to read, by their name in the header or the object.
struct TableColumns {
  std::string text;
  std::string label;  ///< Empty: labels are not read.
  /// The setting of `text`, as messages name it.
  const char* text_key = "data_config.text_column";
  std::string text_pair = {};  ///< Empty: there are no second texts.
  bool label_lists = false;    ///< A label may also be a list in JSON, and is then read as JSON.
};

/// A field as in the file.
struct TableCell {
  std::string text;
  bool is_json = false;  ///< A number, true, false, null, a list or an object of JSON.
};

struct TableRow {
  int64_t line = 0;  ///< Where it begins in the file, from 1.
  std::string text;
  std::string text_pair;         ///< The second text.
  std::string label;             ///< In JSON: a string, or a number, true or false as written.
  std::vector<TableCell> cells;  ///< All columns, if requested.
};

/// Whether `text` consists of spaces and line ends only.
bool is_blank(const std::string& text);

/// Whether the name is that of a file of rows: .csv, .tsv, .jsonl, .ndjson or .json, in any case.
bool is_row_file(const std::string& path);

/// Throws UserError that begins with `key` if `path` is neither such a file nor is_arrow_table().
void require_row_file(const char* key, const std::string& path);

/// The rows of a file below the header, one at a time; its format: as RecordFile's. Empty lines of
/// separated values are skipped; a quoted field may hold separators, line ends and doubled quotes.
class TableReader {
 public:
  /// Throws UserError with the file and the reason: not readable, another separator, or a column
  /// that its header lacks. `with_cells`: rows have the cells of all columns.
  TableReader(const std::string& path, TableColumns columns, bool with_cells = false);

  /// Returns false at the end of the file. Throws UserError "FILE:LINE: reason" for a row that
  /// cannot be used: not UTF-8, a column that is missing or not a text, more or fewer fields than
  /// the header, a field above 4 MB (64 MB without labels), or more than 10,000 fields. The next
  /// call continues after it. Throws BrokenFileError: a quote is never closed, or as RecordFile;
  /// RunError: the system failed to read the file.
  bool next(TableRow& row);
  /// The names of all columns so far; an object whose name is absent has the cell null.
  const std::vector<std::string>& names() const { return header_; }

 private:
  void read_header();
  bool next_separated(TableRow& row);
  bool next_json(TableRow& row);

  RecordFile file_;
  TableColumns columns_;
  bool with_cells_;
  std::vector<std::string> header_;
  std::size_t text_at_ = 0;
  std::size_t text_pair_at_ = 0;
  std::size_t label_at_ = 0;
  Record record_;
};

/// All rows of `path`. Throws UserError with `key`, the file, the line and the reason.
/// `all_columns`, unless null, receives the names of all columns, and each row its cells of them.
std::vector<TableRow> read_table(const char* key, const std::string& path,
                                 const TableColumns& columns,
                                 std::vector<std::string>* all_columns = nullptr);

}  // namespace ddp::train
