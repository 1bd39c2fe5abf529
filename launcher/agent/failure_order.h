// Determines which failure came first.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// Orders failures seen in one wake-up, probable cause first:
///  1. killed by a signal that libraries do not raise themselves (SIGKILL, SIGSEGV, ...), unless an
///     error file is more than a second older: a worker that loses a peer fails after it;
///  2. error files, the oldest first;
///  3. exit codes without an error file;
///   4. SIGABRT and SIGTERM: ends of workers that wait for a failed peer, e.g. by NCCL's watchdog.
/// Ties are ordered by rank.
void order_failures(std::vector<ProcessFailure>& batch);
/// Adds failures of workers that were already dying when the earlier ones were seen. The order is
/// the same, except that among ties, and among 3. and 4., the failure seen first stays first.
void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch);

/// Returns whether a worker wrote this error file before the other failure: before its error file
/// or, without one, before its death was seen. A kill by a signal (1.) and the loss of the store
/// get a second to be seen, as their peers notice earlier. Returns false if there is no such file.
bool wrote_earlier(const ErrorFile& error_file, const ProcessFailure& failure);

}  // namespace ddp::launch
