// --scheduler: fills in options that were not given from what the scheduler says.
#pragma once

#include "launcher/base/command.h"
#include "launcher/cli/raw_options.h"

namespace ddp::launch {

/// Adds to `raw` what is missing, with its source, and one hint that names it all. Given options
/// win. Without --scheduler nothing is taken; a hint tells those who may have forgotten it.
/// Errors are LaunchErrors (2).
void add_scheduler_options(RawOptions& raw, const Environment& environment);

}  // namespace ddp::launch
