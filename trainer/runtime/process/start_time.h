// Start times of the run, for ${now:...}, and of this process, and the current time.
#pragma once

#include <ctime>

namespace ddp::train {

/// Under a launcher (TORCHELASTIC_RUN_ID is set) the launcher's start, so that a restarted group
/// finds the folder of its first attempt; otherwise the first call. Constant for the process.
std::time_t run_start_time();

/// When this process started, in seconds since 1970, to 10 ms; now if /proc cannot be read.
double process_start_unix_seconds();
/// Marks this process, which has waited until it was needed, as started now.
void count_as_started_now();

/// Now, seconds since 1970.
double unix_seconds();

}  // namespace ddp::train
