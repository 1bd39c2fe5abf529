// What to do about a failure. Pure; docs/troubleshooting.md has a section for each answer.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// At most three lines: what the failing rank's words mean, then what its end means. `words`: the
/// end of its output, its error message. Empty if neither says anything to us.
std::vector<std::string> advice_for(const ProcessFailure& failure, const std::string& words);

}  // namespace ddp::launch
