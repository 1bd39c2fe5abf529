// --scheduler: fills in missing options from the scheduler's variables.
#pragma once

#include "launcher/base/command.h"
#include "launcher/cli/raw_options.h"

namespace ddp::launch {

/// Adds missing options to `raw`, with their sources, and one hint that lists them. Given options
/// win. Without --scheduler nothing is added but a hint for users who may have forgotten it. Errors
/// are LaunchErrors (2).
void add_scheduler_options(RawOptions& raw, const Environment& environment);

}  // namespace ddp::launch
