// Reads tables of texts: comma- or tab-separated values (RFC 4180), or JSON objects, one per
// line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

/// The columns to read, by their name in the header or the object.
struct TableColumns {
  std::string text;
  std::string label;  ///< Empty: labels are not read.
};

/// A field as in the file.
struct TableCell {
  std::string text;
  bool is_json = false;  ///< A number, true, false, null, a list or an object of JSON.
};

struct TableRow {
  int64_t line = 0;  ///< Where it begins in the file, from 1.
  std::string text;
  std::string label;             ///< In JSON: a string, or a number, true or false as written.
  std::vector<TableCell> cells;  ///< All columns, if requested.
};

/// Whether `text` consists of spaces and line ends only.
bool is_blank(const std::string& text);

/// The rows of `path` below the header. The name gives the format: .csv, .tsv, .jsonl or .ndjson,
/// in any case. Lines end with LF, CR LF or CR.
/// Empty lines are skipped; a quoted field may hold separators, line ends and doubled quotes.
/// Throws UserError with `key`, the file, the line and the reason: not readable or not UTF-8, a
/// column that is missing, a row with more or fewer fields than the header, an open quote, another
/// separator, a field above 4 MB, or more than 10,000 fields. `all_columns`, unless null, receives
/// the names of all columns, and each row its cells of them; where an object lacks a name, that
/// cell is null.
std::vector<TableRow> read_table(const char* key, const std::string& path,
                                 const TableColumns& columns,
                                 std::vector<std::string>* all_columns = nullptr);

}  // namespace ddp::train
