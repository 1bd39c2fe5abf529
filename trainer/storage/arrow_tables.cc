// Texts of Parquet and Arrow files. Part of libtrainer_arrow.so, see arrow_module.h.
#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/table.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/log/message.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {
namespace {

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
      fmt::format("has no column '{}', or several; its columns are {}; set "
                  "data_config.text_column",
                  shown(column), shown_list(schema.field_names())));
}

template <class Array>
void take_all(const arrow::Array& array, const TakeText& take) {
  const auto& texts = static_cast<const Array&>(array);
  for (int64_t i = 0; i < texts.length(); ++i) {
    if (texts.IsValid(i)) take(texts.GetView(i));
  }
}

void take_array(const arrow::Array& array, const std::string& column, const TakeText& take) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return take_all<arrow::StringArray>(array, take);
    case arrow::Type::LARGE_STRING:
      return take_all<arrow::LargeStringArray>(array, take);
    case arrow::Type::STRING_VIEW:
      return take_all<arrow::StringViewArray>(array, take);
    default:
      throw UserError(
          fmt::format("column '{}' is of type {}, not string; set "
                      "data_config.text_column",
                      column, array.type()->ToString()));
  }
}

void read_parquet(const std::shared_ptr<arrow::io::RandomAccessFile>& file,
                  const std::string& column, const TakeText& take) {
  parquet::arrow::FileReaderBuilder builder;
  check(builder.Open(file));
  std::unique_ptr<parquet::arrow::FileReader> reader;
  check(builder.Build(&reader));
  std::shared_ptr<arrow::Schema> schema;
  check(reader->GetSchema(&schema));
  column_of(*schema, column);
  const int leaf = reader->parquet_reader()->metadata()->schema()->ColumnIndex(column);
  if (leaf < 0) throw UserError(fmt::format("column '{}' is not of texts", column));
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    const auto table = get(reader->ReadRowGroup(group, {leaf}));
    for (const auto& chunk : table->column(0)->chunks()) take_array(*chunk, column, take);
  }
}

void read_arrow(const std::shared_ptr<arrow::io::RandomAccessFile>& file, const std::string& column,
                const TakeText& take) {
  const auto reader = get(arrow::ipc::RecordBatchFileReader::Open(file));
  const int field = column_of(*reader->schema(), column);
  for (int batch = 0; batch < reader->num_record_batches(); ++batch)
    take_array(*get(reader->ReadRecordBatch(batch))->column(field), column, take);
}

}  // namespace
}  // namespace ddp::train

extern "C" __attribute__((visibility("default"))) void ddp_trainer_read_table_texts(
    const std::string& path, const std::string& column, const ddp::train::TakeText& take) {
  using namespace ddp::train;
  try {
    const auto file = get(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
    lower_extension(path) == ".parquet" ? read_parquet(file, column, take)
                                        : read_arrow(file, column, take);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path, error.what()));
  } catch (const std::exception& error) {  // parquet's, on damaged files
    throw UserError(fmt::format("{}: cannot be read: {}", path, error.what()));
  }
}
