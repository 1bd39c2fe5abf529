// Reads texts in the columns of Parquet and Arrow files, using the module that trainer loads for
// object stores; see arrow_module.h.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ddp::train {

/// Valid during the call.
using TakeText = std::function<void(std::string_view)>;

/// Whether the name ends in .parquet, .arrow or .feather.
bool is_arrow_table(const std::string& path);

/// Calls `take` with each text of `column` in the order of the rows; nulls are skipped. Throws
/// UserError with the file: not readable, no such column (with those there are), a column of
/// another type; or that this trainer was built without Arrow.
void read_table_texts(const std::string& path, const std::string& column, const TakeText& take);

}  // namespace ddp::train
