// Which failure came first.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// Orders failures seen in one wake-up, probable cause first: deaths by signal, then by age of the
/// error file, then by rank. (A worker that loses a peer fails after it, never before.)
void order_failures(std::vector<ProcessFailure>& batch);
/// Adds failures of workers that were already dying when the earlier ones were seen, in the same
/// order, except that ties go to the one seen first.
void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch);

/// True if this error file is older than the failed worker's own; false if either is missing. A
/// worker that loses a peer may exit before the kernel has finished tearing that peer down.
bool wrote_earlier(const std::string& error_file, const ProcessFailure& failure);

}  // namespace ddp::launch
