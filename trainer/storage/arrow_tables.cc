// Texts and rows of Parquet and Arrow files. Part of libtrainer_arrow.so, see arrow_module.h.
#include <arrow/array.h>
#include <arrow/array/array_nested.h>
#include <arrow/buffer.h>
#include <arrow/extension_type.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/type_traits.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/log/message.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {
namespace {

/// Appends the value at `row`, nested values included, to `json`. Bytes, and numbers that JSON does
/// not have, are null; dates and other values that JSON does not have are strings. Strings are not
/// checked for UTF-8.
void append_json(const arrow::Array& array, int64_t row, std::string& json);

void append_quoted(std::string_view text, std::string& json) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (static_cast<unsigned char>(c) < 0x20U) {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", c);
    } else {
      json += c;
    }
  }
  json += '"';
}

template <class Strings>
void append_string(const arrow::Array& array, int64_t row, std::string& json) {
  append_quoted(static_cast<const Strings&>(array).GetView(row), json);
}

template <class Lists>
void append_list(const arrow::Array& array, int64_t row, std::string& json) {
  const auto& lists = static_cast<const Lists&>(array);
  const int64_t begin = lists.value_offset(row);
  const auto& values = *lists.values();
  json += '[';
  for (int64_t i = 0; i < lists.value_length(row); ++i) {
    if (i > 0) json += ',';
    append_json(values, begin + i, json);
  }
  json += ']';
}

void append_struct(const arrow::Array& array, int64_t row, std::string& json) {
  const auto& structs = static_cast<const arrow::StructArray&>(array);
  json += '{';
  for (int i = 0; i < structs.num_fields(); ++i) {
    if (i > 0) json += ',';
    append_quoted(structs.struct_type()->field(i)->name(), json);
    json += ':';
    append_json(*structs.field(i), row, json);
  }
  json += '}';
}

void append_scalar(const arrow::Array& array, int64_t row, std::string& json) {
  const auto type = array.type_id();
  const std::string text = array.GetScalar(row).ValueOrDie()->ToString();
  const bool number = arrow::is_integer(type) || arrow::is_floating(type);
  if (type != arrow::Type::BOOL && !number) return append_quoted(text, json);
  json += text.find("nan") == std::string::npos && text.find("inf") == std::string::npos ? text
                                                                                         : "null";
}

void append_json(const arrow::Array& array, int64_t row, std::string& json) {
  using Type = arrow::Type;
  if (json.size() > kMostRowBytes) throw UserError("a row has more than 64 MB; divide it");
  if (array.IsNull(row)) {
    json += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::STRING:
      return append_string<arrow::StringArray>(array, row, json);
    case Type::LARGE_STRING:
      return append_string<arrow::LargeStringArray>(array, row, json);
    case Type::STRING_VIEW:
      return append_string<arrow::StringViewArray>(array, row, json);
    case Type::LIST:
    case Type::MAP:
      return append_list<arrow::ListArray>(array, row, json);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, row, json);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, row, json);
    case Type::STRUCT:
      return append_struct(array, row, json);
    case Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return append_json(*coded.dictionary(), coded.GetValueIndex(row), json);
    }
    case Type::EXTENSION:
      return append_json(*static_cast<const arrow::ExtensionArray&>(array).storage(), row, json);
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY:
      json += "null";
      return;
    default:
      return append_scalar(array, row, json);
  }
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw UserError(status.ToStringWithoutContextLines());
}

template <class T>
T get(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

int column_of(const arrow::Schema& schema, const std::string& column) {
  const int index = schema.GetFieldIndex(column);
  if (index >= 0) return index;
  throw UserError(
      fmt::format("has no column '{}', or several; its columns are {}; set text_column to one",
                  shown(column), shown_list(schema.field_names())));
}

template <class Array>
void take_all(const arrow::Array& array, std::vector<std::string>& to) {
  const auto& texts = static_cast<const Array&>(array);
  for (int64_t i = 0; i < texts.length(); ++i) {
    to.emplace_back(texts.IsValid(i) ? texts.GetView(i) : std::string_view());
  }
}

void take_array(const arrow::Array& array, const std::string& column,
                std::vector<std::string>& to) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return take_all<arrow::StringArray>(array, to);
    case arrow::Type::LARGE_STRING:
      return take_all<arrow::LargeStringArray>(array, to);
    case arrow::Type::STRING_VIEW:
      return take_all<arrow::StringViewArray>(array, to);
    default:
      throw UserError(
          fmt::format("column '{}' is of type {}, not string; set text_column to another", column,
                      array.type()->ToString()));
  }
}

/// Runs `work` on the file at `path`; what it throws begins with that name.
template <class Work>
auto with_file(const std::string& path, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path, error.what()));
  } catch (const std::exception& error) {  // parquet's, on damaged files
    throw UserError(fmt::format("{}: cannot be read: {}", path, error.what()));
  }
}

using File = std::shared_ptr<arrow::io::RandomAccessFile>;
using Batches = std::shared_ptr<arrow::RecordBatchReader>;

/// A batch holds this many rows at most where the file does not cut them itself.
constexpr int64_t kRowsAtATime = 1024;

class ParquetBatches : public arrow::RecordBatchReader {
 public:
  /// An empty `column` stands for all columns.
  ParquetBatches(const File& file, const std::string& column) {
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRowsAtATime);
    properties.set_pre_buffer(false);  // it would keep all of the column
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file));
    check(builder.properties(properties)->Build(&reader_));
    std::vector<int> groups(static_cast<std::size_t>(reader_->num_row_groups()));
    std::iota(groups.begin(), groups.end(), 0);
    batches_ = get(column.empty() ? reader_->GetRecordBatchReader(groups)
                                  : reader_->GetRecordBatchReader(groups, {leaf_of(column)}));
  }

  std::shared_ptr<arrow::Schema> schema() const override { return batches_->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    return batches_->ReadNext(batch);
  }

 private:
  int leaf_of(const std::string& column) {
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema));
    column_of(*schema, column);
    const int leaf = reader_->parquet_reader()->metadata()->schema()->ColumnIndex(column);
    if (leaf < 0) throw UserError(fmt::format("column '{}' is not of texts", column));
    return leaf;
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;  // batches_ uses it
  Batches batches_;
};

class ArrowFileBatches : public arrow::RecordBatchReader {
 public:
  explicit ArrowFileBatches(const File& file)
      : reader_(get(arrow::ipc::RecordBatchFileReader::Open(file))) {}

  std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    batch->reset();
    if (at_ == reader_->num_record_batches()) return arrow::Status::OK();
    return reader_->ReadRecordBatch(at_++).Value(batch);
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int at_ = 0;
};

/// Arrow's files begin with their name; its streams, which datasets' save_to_disk() writes, do not.
Batches open_batches(const std::string& path, const std::string& column) {
  const File file = get(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  if (lower_extension(path) == ".parquet") return std::make_shared<ParquetBatches>(file, column);
  constexpr std::string_view kFileStart = "ARROW1";
  const auto start = get(file->ReadAt(0, kFileStart.size()));
  if (std::string_view(*start) == kFileStart) return std::make_shared<ArrowFileBatches>(file);
  return get(arrow::ipc::RecordBatchStreamReader::Open(file));
}

class ArrowTexts : public ColumnTexts {
 public:
  ArrowTexts(const std::string& path, const std::string& column)
      : path_(path), column_(column), batches_(open_batches(path, column)) {
    if (!column.empty()) field_ = column_of(*batches_->schema(), column);
  }

  bool next(std::vector<std::string>& texts) override {
    return with_file(path_, [&] {
      texts.clear();
      if (!rest_ || rest_->num_rows() == 0) next_batch();
      if (!rest_) return false;
      const auto batch = rest_->Slice(0, kRowsAtATime);
      rest_ = rest_->Slice(batch->num_rows());
      row_ += batch->num_rows();
      if (column_.empty()) {
        take_rows(*get(batch->ToStructArray()), texts);
      } else {
        take_array(*batch->column(field_), column_, texts);
      }
      return true;
    });
  }

 private:
  /// Offsets and codes of a damaged file would be followed as they are.
  void next_batch() {
    check(batches_->ReadNext(&rest_));
    if (!rest_ || rest_->ValidateFull().ok()) return;
    // A slice of a nested column is checked with all of its values, whichever row they are of.
    const auto nested = [](const auto& field) { return field->type()->num_fields() > 0; };
    const bool by_row = std::ranges::none_of(rest_->schema()->fields(), nested);
    for (int64_t i = 0; by_row && i < rest_->num_rows(); ++i) {
      const std::string problem = rest_->Slice(i, 1)->ValidateFull().message();
      if (!problem.empty())  // the index in it counts within the row
        throw UserError(fmt::format("row {}: {}", row_ + i + 1,
                                    problem.substr(0, problem.find(" at string index"))));
    }
    check(rest_->ValidateFull());
  }

  static void take_rows(const arrow::Array& rows, std::vector<std::string>& texts) {
    for (int64_t i = 0; i < rows.length(); ++i) append_json(rows, i, texts.emplace_back());
  }

  std::string path_;
  std::string column_;
  Batches batches_;
  std::shared_ptr<arrow::RecordBatch> rest_;  // of a batch; null: none yet, or the end
  int64_t row_ = 0;                           // rows before it
  int field_ = 0;
};

}  // namespace
}  // namespace ddp::train

extern "C" __attribute__((visibility("default"))) ddp::train::ColumnTexts*
ddp_trainer_open_column_texts(const std::string& path, const std::string& column) {
  using namespace ddp::train;
  return with_file(path, [&]() -> ColumnTexts* { return new ArrowTexts(path, column); });
}
