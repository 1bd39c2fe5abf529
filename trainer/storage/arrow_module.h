// The interface to Arrow's file systems and tables: a shared library next to trainer, loaded only
// if a path is remote or a table's. Other runs map none of its 65 MB.
#pragma once

#include <string>

#include "trainer/storage/remote_folder.h"
#include "trainer/storage/table_texts.h"

namespace ddp::train {

/// What the module exports under kArrowModuleEntry: the implementation of open_remote_folder(). The
/// caller owns the result.
using ArrowModuleEntry = RemoteFolder* (*)(const std::string& url);
inline constexpr const char* kArrowModuleEntry = "ddp_trainer_open_remote_folder";

/// The implementation of open_column_texts(), and of open_table_rows() for no column. The caller
/// owns the result.
using ArrowTableEntry = ColumnTexts* (*)(const std::string& path, const std::string& column);
inline constexpr const char* kArrowTableEntry = "ddp_trainer_open_column_texts";

/// Returns the function `entry` of the module; null if there is no module. Throws RunError that
/// begins with `what` if it cannot be loaded.
void* arrow_module_entry(const char* entry, const std::string& what);

}  // namespace ddp::train
