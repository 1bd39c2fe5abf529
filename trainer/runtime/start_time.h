// When the run started, for ${now:...}, when this process did, and what time it is.
#pragma once

#include <ctime>

namespace ddp::train {

/// Under a launcher (TORCHELASTIC_RUN_ID is set) when the launcher started, so that a group that is
/// started again finds the folder of its first attempt; otherwise when it is first asked for. The
/// same for the whole process.
std::time_t run_start_time();

/// When this process was started, seconds since 1970, to 10 ms; now where /proc cannot be read.
double process_start_unix_seconds();

/// Now, seconds since 1970.
double unix_seconds();

}  // namespace ddp::train
