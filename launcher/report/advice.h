// Advice on failures. Pure; docs/troubleshooting.md has a section for each piece of advice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/report/python_error.h"

namespace ddp::launch {

/// Returns advice on the failing rank's output, then on how it exited; empty if neither is known.
/// If an exception (`error`) ended it, only that is searched, else `words`: the end of its output
/// and its error message.
std::vector<std::string> advice_for(const ProcessFailure& failure, const std::string& words,
                                    const std::optional<PythonError>& error = std::nullopt,
                                    WorkerProgram program = WorkerProgram::kOther);

}  // namespace ddp::launch
