// The files and folders that a configuration names.
#pragma once

#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// Whether data must exist: not if only the configuration is used.
enum class DataFiles { kChecked, kUnchecked };

/// Makes relative paths absolute: against the current directory, but snapshot_path against
/// hydra.run.dir if it was not given, in a job of a sweep, and with hydra.job.chdir. Throws
/// UserError if the data cannot be read.
void resolve_paths(Config& config, const Given& given, bool own_folder, DataFiles data);

}  // namespace ddp::train
