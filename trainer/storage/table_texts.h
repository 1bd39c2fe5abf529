// Reads texts in the columns of Parquet and Arrow files, or their rows, using the module that
// trainer loads for object stores; see arrow_module.h.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// The most that a row of a table or of another file may have.
inline constexpr std::size_t kMostRowBytes = std::size_t{64} << 20U;

/// The texts of a column in the order of the rows, or the rows as JSON objects; a batch of rows in
/// memory at a time.
class ColumnTexts {
 public:
  virtual ~ColumnTexts() = default;
  /// Replaces `texts` by those of the next rows, "" for null; false at the end. Throws UserError
  /// with the file.
  virtual bool next(std::vector<std::string>& texts) = 0;
};

/// Extensions of Parquet and Arrow files.
inline constexpr std::array<std::string_view, 3> kTableExtensions = {".parquet", ".arrow",
                                                                     ".feather"};
/// Whether the name ends in one of kTableExtensions.
bool is_arrow_table(const std::string& path);

/// Throws UserError with the file: not readable, no such column (with those there are), a column of
/// another type; or that this trainer was built without Arrow.
std::unique_ptr<ColumnTexts> open_column_texts(const std::string& path, const std::string& column);

/// The rows as JSON objects with all columns, nulls included. Throws as open_column_texts().
std::unique_ptr<ColumnTexts> open_table_rows(const std::string& path);

}  // namespace ddp::train
