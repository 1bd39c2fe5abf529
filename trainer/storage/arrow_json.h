// A row of an Arrow table as JSON. Part of libtrainer_arrow.so, see arrow_module.h.
#pragma once

#include <arrow/array.h>

#include <cstdint>
#include <string>

namespace ddp::train {

/// Appends the value at `row`, nested values included, to `json`. Bytes, and numbers that JSON does
/// not have, are null; dates and other values that JSON does not have are strings. Strings are not
/// checked for UTF-8.
void append_json(const arrow::Array& array, int64_t row, std::string& json);

}  // namespace ddp::train
