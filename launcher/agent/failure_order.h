// Which failure came first.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// Failures that were seen in one wake-up, the probable cause first: deaths by signal, then error
/// files by their age, then ranks. (A worker that loses its peer fails after it, never before.)
void order_failures(std::vector<ProcessFailure>& batch);
/// Adds failures of workers that were dying already when the ones before them were seen, in the
/// same order but for the ranks: of equals the one that was seen first comes first.
void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch);

/// Somebody wrote this error file before the failed worker wrote its own; false when one of the two
/// has none. Who loses a peer may be gone before the kernel has taken that peer apart.
bool wrote_earlier(const std::string& error_file, const ProcessFailure& failure);

}  // namespace ddp::launch
