#include "trainer/data/text/table_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/data/data_source.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/json_depth.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using TableJson = nlohmann::ordered_json;
using ColumnNames = std::vector<std::string>;

constexpr const char* kTextColumn = "data_config.text_column";
constexpr const char* kLabelColumn = "data_config.label_column";
// More than any text or table of a classifier has: a quote that is never closed, or no table.
constexpr std::size_t kMostFieldBytes = std::size_t{4} << 20U;
constexpr std::size_t kMostFields = 10'000;

[[noreturn]] void refuse_line(int64_t line, const std::string& what) {
  throw UserError(fmt::format("line {}: {}", line, what));
}

void check_field(int64_t line, std::string_view field) {
  if (field.size() <= kMostFieldBytes) return;
  refuse_line(line, fmt::format("has a field of {}, more than {}; close its quote or shorten it",
                                size_text(static_cast<double>(field.size())),
                                size_text(static_cast<double>(kMostFieldBytes))));
}

void check_field_count(int64_t line, std::size_t fields) {
  if (fields > kMostFields)
    refuse_line(line, fmt::format("has more than {} fields; is this a table?", kMostFields));
}

/// The records of a text of separated values, one after the other.
class SeparatedValues {
 public:
  SeparatedValues(std::string_view text, char separator)
      : text_(text), separator_(separator), ends_{separator, '\n'} {}

  /// Reads the next record, skipping empty lines; false at the end of the text.
  bool next(ColumnNames& fields) {
    do {
      if (at_ >= text_.size()) return false;
      read_record(fields);
    } while (fields.size() == 1 && fields.front().empty() && !quoted_);
    return true;
  }
  /// Where the last record began.
  int64_t line() const { return record_line_; }

 private:
  void read_record(ColumnNames& fields) {
    fields.clear();
    record_line_ = line_;
    quoted_ = false;
    bool more = true;
    while (more) {
      const bool quotes = at_ < text_.size() && text_[at_] == '"';
      fields.push_back(quotes ? quoted_field() : plain_field());
      check_field(record_line_, fields.back());
      check_field_count(record_line_, fields.size());
      more = at_ < text_.size() && text_[at_] == separator_;
      if (at_ < text_.size()) ++at_;  // the separator or the line's end
    }
    ++line_;
  }

  std::string plain_field() {
    const std::size_t end = std::min(text_.find_first_of(ends_, at_), text_.size());
    std::string_view field = text_.substr(at_, end - at_);
    at_ = end;
    const bool last = end == text_.size() || text_[end] == '\n';
    if (last && field.ends_with('\r')) field.remove_suffix(1);
    return std::string(field);
  }

  std::string quoted_field() {
    quoted_ = true;
    const int64_t opened = line_;
    std::string field;
    for (++at_;;) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos)
        refuse_line(opened, "a quoted field is not terminated; add the closing quote");
      const std::string_view part = text_.substr(at_, quote - at_);
      field += part;
      line_ += std::count(part.begin(), part.end(), '\n');
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != '"') break;
      field += '"';
      ++at_;
    }
    if (text_.substr(at_).starts_with("\r\n")) ++at_;
    if (at_ < text_.size() && ends_.find(text_[at_]) == std::string::npos) {
      refuse_line(opened, "text follows a closing quote; double the quotes inside a quoted field");
    }
    return field;
  }

  std::string_view text_;
  char separator_;
  std::string ends_;
  std::size_t at_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 1;
  bool quoted_ = false;
};

/// Excel writes semicolons where the comma is the decimal sign.
void refuse_other_separator(const ColumnNames& header, char separator) {
  constexpr std::string_view kSeparators = ";\t|,";
  const std::string& line = header.front();
  if (header.size() > 1) return;
  for (const char other : kSeparators) {
    if (other == separator || line.find(other) == std::string::npos) continue;
    throw UserError(fmt::format(
        "its header, {}, seems to be separated by {}, not by {}; save it with commas as .csv, or "
        "with tabs as .tsv",
        shown(line), other == '\t' ? "tabs" : fmt::format("'{}'", other),
        separator == '\t' ? "tabs" : fmt::format("'{}'", separator)));
  }
}

std::size_t column_of(const ColumnNames& header, const char* key, const std::string& name) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) {
    throw UserError(
        fmt::format("has no column {}; its columns are {}; rename one of them, or set {}",
                    shown(name), shown_list(header), key));
  }
  if (std::find(found + 1, header.end(), name) != header.end())
    throw UserError(fmt::format("has two columns {}; rename one", shown(name)));
  return static_cast<std::size_t>(found - header.begin());
}

std::vector<TableCell> cells_of(const ColumnNames& fields) {
  std::vector<TableCell> cells;
  for (const std::string& field : fields) cells.push_back({field});
  return cells;
}

std::vector<TableRow> separated_rows(std::string_view text, char separator,
                                     const TableColumns& columns, ColumnNames* all_columns) {
  SeparatedValues values(text, separator);
  ColumnNames header;
  if (!values.next(header))
    throw UserError("is empty; expected a header line with the column names");
  if (std::find(header.begin(), header.end(), columns.text) == header.end())
    refuse_other_separator(header, separator);
  const std::size_t text_at = column_of(header, kTextColumn, columns.text);
  const bool labelled = !columns.label.empty();
  const std::size_t label_at = labelled ? column_of(header, kLabelColumn, columns.label) : 0;
  std::vector<TableRow> rows;
  for (ColumnNames fields; values.next(fields);) {
    if (fields.size() != header.size()) {
      refuse_line(values.line(),
                  fmt::format("has {} fields, the header has {}; put a field with separators or "
                              "line ends in quotes",
                              fields.size(), header.size()));
    }
    TableRow row{values.line(), "", "", {}};
    if (all_columns != nullptr) row.cells = cells_of(fields);
    row.text = std::move(fields[text_at]);
    if (labelled) row.label = label_at == text_at ? row.text : std::move(fields[label_at]);
    rows.push_back(std::move(row));
  }
  if (all_columns != nullptr) *all_columns = std::move(header);
  return rows;
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

/// A value as a text: that of null is empty.
std::string value_at(const TableJson& object, int64_t line, const char* key,
                     const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    ColumnNames names;
    for (const auto& item : object.items()) names.push_back(item.key());
    refuse_line(line, fmt::format("has no {}; its names are {}; set {} to one of them", shown(name),
                                  shown_list(names), key));
  }
  if (found->is_string()) return found->get<std::string>();
  if (found->is_null()) return "";
  if (found->is_structured())
    refuse_line(line, fmt::format("{} is a list or an object; expected text", shown(name)));
  return found->dump();
}

std::vector<TableRow> json_rows(std::string_view text, const TableColumns& columns,
                                ColumnNames* all_columns) {
  std::vector<TableRow> rows;
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view source = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (source.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (has_more_members(source, kMostFields)) check_field_count(line, kMostFields + 1);
    const auto object =
        nests_too_deeply(source) ? TableJson() : TableJson::parse(source, nullptr, false);
    if (!object.is_object()) refuse_line(line, "is not a JSON object; write one per line");
    TableRow row{line, value_at(object, line, kTextColumn, columns.text), "", {}};
    check_field(line, row.text);
    if (all_columns != nullptr) row.cells = cells_of(object, *all_columns);
    if (all_columns != nullptr) check_field_count(line, all_columns->size());
    if (!columns.label.empty()) row.label = value_at(object, line, kLabelColumn, columns.label);
    rows.push_back(std::move(row));
  }
  if (all_columns == nullptr) return rows;
  for (TableRow& row : rows) row.cells.resize(all_columns->size(), {"null", /*is_json=*/true});
  return rows;
}

std::vector<TableRow> table_rows(const std::string& path, std::string& text,
                                 const TableColumns& columns, ColumnNames* all_columns) {
  const std::string end = lower_extension(path);
  // As old programs end lines.
  if (text.find('\n') == std::string::npos) std::replace(text.begin(), text.end(), '\r', '\n');
  if (end == ".csv") return separated_rows(text, ',', columns, all_columns);
  if (end == ".tsv") return separated_rows(text, '\t', columns, all_columns);
  return json_rows(text, columns, all_columns);
}

void check_kind(const char* key, const std::string& path) {
  std::error_code ignored;
  const std::string end = lower_extension(path);
  const bool known = end == ".csv" || end == ".tsv" || end == ".jsonl" || end == ".ndjson";
  if (fs::is_regular_file(path, ignored) && known) return;
  throw UserError(fmt::format("{}: {}: expected a .csv, .tsv or .jsonl file", key, path));
}

}  // namespace

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

std::vector<TableRow> read_table(const char* key, const std::string& path,
                                 const TableColumns& columns, ColumnNames* all_columns) {
  check_kind(key, path);
  std::string text = read_utf8_text(key, path);
  try {
    return table_rows(path, text, columns, all_columns);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}: {}", key, path, error.what()));
  }
}

}  // namespace ddp::train
