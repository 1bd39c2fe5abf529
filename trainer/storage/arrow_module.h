// The seam to Arrow's file systems: a shared library beside trainer, loaded only when a path is
// remote. A run with local paths maps none of its 65 MB.
#pragma once

#include <string>

#include "trainer/storage/remote_folder.h"

namespace ddp::train {

/// What the module exports under kArrowModuleEntry: open_remote_folder() behind the seam. The
/// caller owns the result.
using ArrowModuleEntry = RemoteFolder* (*)(const std::string& url);
inline constexpr const char* kArrowModuleEntry = "ddp_trainer_open_remote_folder";

}  // namespace ddp::train
