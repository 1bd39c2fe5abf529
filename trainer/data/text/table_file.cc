#include "trainer/data/text/table_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/with_key.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using TableJson = nlohmann::ordered_json;
using ColumnNames = std::vector<std::string>;

constexpr const char* kLabelColumn = "data_config.label_column";
constexpr const char* kTextPairColumn = "data_config.text_pair_column";
// More than any text or table of a classifier has: a quote that is never closed, or no table.
constexpr std::size_t kMostFieldBytes = std::size_t{4} << 20U;
constexpr std::size_t kMostFields = 10'000;

/// What is wrong with a row, without its place.
struct RowError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The row takes in the rest of the file.
struct OpenQuoteError : RowError {
  OpenQuoteError() : RowError("a quoted field is not terminated; add the closing quote") {}
};

void check_field(std::string_view field) {
  if (field.size() <= kMostFieldBytes) return;
  throw RowError(fmt::format("has a field of {}, more than {}; close its quote or shorten it",
                             size_text(static_cast<double>(field.size())),
                             size_text(static_cast<double>(kMostFieldBytes))));
}

void check_field_count(std::size_t fields) {
  if (fields > kMostFields)
    throw RowError(fmt::format("has more than {} fields; is this a table?", kMostFields));
}

/// The fields of a record of separated values.
class SeparatedFields {
 public:
  SeparatedFields(std::string_view record, char separator) : text_(record), separator_(separator) {}

  ColumnNames all() {
    ColumnNames fields;
    for (bool more = true; more; ++at_) {
      const bool quotes = at_ < text_.size() && text_[at_] == '"';
      fields.push_back(quotes ? quoted_field() : plain_field());
      check_field_count(fields.size());
      more = at_ < text_.size();  // at a separator
    }
    return fields;
  }

 private:
  std::string plain_field() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find(separator_, at_), text_.size());
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted_field() {
    std::string field;
    for (++at_;;) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) throw OpenQuoteError();
      field += text_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != '"') break;
      field += '"';
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] != separator_)
      throw RowError("text follows a closing quote; double the quotes inside a quoted field");
    return field;
  }

  std::string_view text_;
  char separator_;
  std::size_t at_ = 0;
};

/// Excel writes semicolons where the comma is the decimal sign.
void refuse_other_separator(const ColumnNames& header, char separator) {
  constexpr std::string_view kSeparators = ";\t|,";
  const std::string& line = header.front();
  if (header.size() > 1) return;
  for (const char other : kSeparators) {
    if (other == separator || line.find(other) == std::string::npos) continue;
    throw RowError(fmt::format(
        "its header, {}, seems to be separated by {}, not by {}; save it with commas as .csv, or "
        "with tabs as .tsv",
        shown(line), other == '\t' ? "tabs" : fmt::format("'{}'", other),
        separator == '\t' ? "tabs" : fmt::format("'{}'", separator)));
  }
}

std::size_t column_of(const ColumnNames& header, const char* key, const std::string& name) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) {
    throw RowError(
        fmt::format("has no column {}; its columns are {}; rename one of them, or set {}",
                    shown(name), shown_list(header), key));
  }
  if (std::find(found + 1, header.end(), name) != header.end())
    throw RowError(fmt::format("has two columns {}; rename one", shown(name)));
  return static_cast<std::size_t>(found - header.begin());
}

std::vector<TableCell> cells_of(const ColumnNames& fields) {
  std::vector<TableCell> cells;
  for (const std::string& field : fields) cells.push_back({field});
  return cells;
}

/// By the names in `columns`, to which new ones are added.
std::vector<TableCell> cells_of(const TableJson& object, ColumnNames& columns) {
  const TableCell absent{"null", /*is_json=*/true};
  std::vector<TableCell> cells(columns.size(), absent);
  for (const auto& [name, value] : object.items()) {
    const auto at = std::find(columns.begin(), columns.end(), name) - columns.begin();
    if (at == std::ssize(columns)) {
      columns.push_back(name);
      cells.push_back(absent);
    }
    cells[static_cast<std::size_t>(at)] = value.is_string()
                                              ? TableCell{value.get<std::string>()}
                                              : TableCell{value.dump(), /*is_json=*/true};
  }
  return cells;
}

/// "; its names are text, label; set data_config.text_column to one of them"
std::string names_note(const TableJson& object, const char* key) {
  ColumnNames names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return fmt::format("; its names are {}; set {} to one of them", shown_list(names), key);
}

const TableJson& member(const TableJson& object, const char* key, const std::string& name) {
  const auto found = object.find(name);
  if (found != object.end()) return *found;
  const bool chat = (object.contains("messages") || object.contains("conversations")) &&
                    std::string_view(key).starts_with("data_config.");
  throw RowError(fmt::format("has no {}{}{}", shown(name), names_note(object, key),
                             chat ? ", or data_config.format=chat for conversations" : ""));
}

/// A text: that of null is empty.
std::string text_at(const TableJson& object, const char* key, const std::string& name) {
  const TableJson& value = member(object, key, name);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  throw RowError(fmt::format("{} is of type {}, not a text{}", shown(name), value.type_name(),
                             names_note(object, key)));
}

/// A label: a string, or a number, true or false as written.
std::string label_at(const TableJson& object, const TableColumns& columns) {
  const std::string& name = columns.label;
  const TableJson& value = member(object, kLabelColumn, name);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  if (value.is_structured() && !(columns.label_lists && value.is_array()))
    throw RowError(fmt::format("{} is a list or an object; expected a label", shown(name)));
  return value.dump();
}

}  // namespace

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

bool is_row_file(const std::string& path) {
  const std::string end = lower_extension(path);
  return end == ".csv" || end == ".tsv" || end == ".jsonl" || end == ".ndjson" || end == ".json";
}

void require_row_file(const char* key, const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored) && (is_row_file(path) || is_arrow_table(path))) return;
  if (!fs::exists(path, ignored))
    throw UserError(fmt::format("{}: {}: no such file; give a file of rows", key, path));
  throw UserError(
      fmt::format("{}: {}: expected a file of rows (.csv, .tsv, .jsonl, .ndjson, .json, {})", key,
                  path, fmt::join(kTableExtensions, ", ")));
}

TableReader::TableReader(const std::string& path, TableColumns columns, bool with_cells)
    : file_(path), columns_(std::move(columns)), with_cells_(with_cells) {
  if (!file_.is_json()) read_header();
}

void TableReader::read_header() {
  const auto refuse = [&](const std::string& what) {
    throw UserError(fmt::format("{}: {}", file_.path(), what));
  };
  try {
    do {
      if (!file_.next(record_)) refuse("is empty; expected a header line with the column names");
    } while (record_.text.empty());
    header_ = SeparatedFields(record_.text, file_.separator()).all();
    if (std::find(header_.begin(), header_.end(), columns_.text) == header_.end())
      refuse_other_separator(header_, file_.separator());
    text_at_ = column_of(header_, columns_.text_key, columns_.text);
    if (!columns_.text_pair.empty())
      text_pair_at_ = column_of(header_, kTextPairColumn, columns_.text_pair);
    if (!columns_.label.empty()) label_at_ = column_of(header_, kLabelColumn, columns_.label);
  } catch (const RowError& error) {
    refuse(error.what());
  }
}

bool TableReader::next(TableRow& row) {
  try {
    row = {};
    return file_.is_json() ? next_json(row) : next_separated(row);
  } catch (const OpenQuoteError& error) {
    throw BrokenFileError(file_.at(record_.line, error.what()));
  } catch (const RowError& error) {
    throw UserError(file_.at(record_.line, error.what()));
  }
}

bool TableReader::next_separated(TableRow& row) {
  do {
    if (!file_.next(record_)) return false;
  } while (record_.text.empty());
  row.line = record_.line;
  ColumnNames fields = SeparatedFields(record_.text, file_.separator()).all();
  if (fields.size() != header_.size()) {
    throw RowError(fmt::format(
        "has {} fields, the header has {}; put a field with separators or line ends in quotes",
        fields.size(), header_.size()));
  }
  if (with_cells_) row.cells = cells_of(fields);
  const bool labelled = !columns_.label.empty();
  if (labelled) std::for_each(fields.begin(), fields.end(), check_field);
  if (labelled) row.label = fields[label_at_];
  if (!columns_.text_pair.empty()) row.text_pair = fields[text_pair_at_];
  row.text = std::move(fields[text_at_]);
  return true;
}

bool TableReader::next_json(TableRow& row) {
  if (!file_.next(record_)) return false;
  row.line = record_.line;
  if (has_more_members(record_.text, kMostFields)) check_field_count(kMostFields + 1);
  const auto object = nests_too_deeply(record_.text)
                          ? TableJson()
                          : TableJson::parse(record_.text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() && record_.text.starts_with('{'))  // for the reason
    parse_bounded_ordered_json(record_.text, fmt::format("{}:{}", file_.path(), row.line));
  if (!object.is_object())
    throw RowError("is not a JSON object; write one per line, or an array of objects");
  row.text = text_at(object, columns_.text_key, columns_.text);
  if (!columns_.text_pair.empty())
    row.text_pair = text_at(object, kTextPairColumn, columns_.text_pair);
  if (with_cells_) row.cells = cells_of(object, header_);
  if (with_cells_) check_field_count(header_.size());
  if (columns_.label.empty()) return true;
  check_field(row.text);
  check_field(row.text_pair);
  row.label = label_at(object, columns_);
  return true;
}

std::vector<TableRow> read_table(const char* key, const std::string& path,
                                 const TableColumns& columns, ColumnNames* all_columns) {
  require_row_file(key, path);
  return with_key(key, [&] {
    TableReader reader(path, columns, all_columns != nullptr);
    std::vector<TableRow> rows;
    for (TableRow row; reader.next(row);) rows.push_back(std::move(row));
    if (all_columns == nullptr) return rows;
    *all_columns = reader.names();
    for (TableRow& row : rows) row.cells.resize(all_columns->size(), {"null", /*is_json=*/true});
    return rows;
  });
}

}  // namespace ddp::train
