// What to do about a failure. Pure; docs/troubleshooting.md has a section for each answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/report/python_error.h"

namespace ddp::launch {

/// What the failing rank's words mean, then what its end means. `error`: the exception that ended
/// it, which alone counts then; else `words`, the end of its output and its error message. Empty if
/// neither says anything to us.
std::vector<std::string> advice_for(const ProcessFailure& failure, const std::string& words,
                                    const std::optional<PythonError>& error = std::nullopt,
                                    WorkerProgram program = WorkerProgram::Other);

}  // namespace ddp::launch
