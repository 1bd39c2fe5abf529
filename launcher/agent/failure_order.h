// Which failure came first.
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
///  4. SIGABRT and SIGTERM: what a worker dies of that waits for a failed peer, as by NCCL's
///     watchdog.
/// Equals by rank.
void order_failures(std::vector<ProcessFailure>& batch);
/// Adds failures of workers that were already dying when the earlier ones were seen, in the same
/// order, except that ties go to the one seen first, as do 3. and 4.
void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch);

/// Whether a worker wrote this error file before the other one failed: before that one's own error
/// file, or else before its death was seen. Unless that death looks secondary (4.), a second is
/// allowed for the kernel to report it. False if there is no such file.
bool wrote_earlier(const std::string& error_file, const ProcessFailure& failure);

}  // namespace ddp::launch
