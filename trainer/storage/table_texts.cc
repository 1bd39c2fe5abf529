#include "trainer/storage/table_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {

bool is_arrow_table(const std::string& path) {
  return std::ranges::find(kTableExtensions, lower_extension(path)) != kTableExtensions.end();
}

std::unique_ptr<ColumnTexts> open_column_texts(const std::string& path, const std::string& column) {
  void* const entry = arrow_module_entry(kArrowTableEntry, path);
  if (entry == nullptr) {
    throw UserError(fmt::format(
        "{0}: this trainer was built without Arrow, which reads tables; write JSON lines: python3 "
        "-c \"import pandas; pandas.read_{1}('{0}').to_json('rows.jsonl', orient='records', "
        "lines=True)\", or ./scripts/setup.sh --object-stores, then build again",
        path, lower_extension(path) == ".parquet" ? "parquet" : "feather"));
  }
  return std::unique_ptr<ColumnTexts>(reinterpret_cast<ArrowTableEntry>(entry)(path, column));
}

std::unique_ptr<ColumnTexts> open_table_rows(const std::string& path) {
  return open_column_texts(path, "");
}

}  // namespace ddp::train
