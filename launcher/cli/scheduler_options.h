// --scheduler: fills in options that were not given from what the scheduler says.
#pragma once

#include "launcher/base/command.h"
#include "launcher/cli/raw_options.h"

namespace ddp::launch {

/// Adds what is missing in `raw`, with its source, and one hint that lists all of it. Given options
/// win. Without --scheduler nothing is added; a hint is for users who may have forgotten it.
/// Errors are LaunchErrors (2).
void add_scheduler_options(RawOptions& raw, const Environment& environment);

}  // namespace ddp::launch
