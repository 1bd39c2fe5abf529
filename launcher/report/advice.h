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

/// The traces of a failed rank.
struct Traces {
  std::string words;                   // its last lines and its error file
  std::optional<PythonError> error{};  // the exception that ended it
  std::string output{};                // where its full output is; empty: not kept, or none
  std::string logs{};                  // the folder of its log files; empty: not kept
  std::string elsewhere{};             // the host that has its files, unless it is this one
  int world_size = 0;                  // 0: unknown
  bool several_nodes = false;
};

/// Returns a sentence about the user's line that an exception points to.
std::string look_at(const PythonError& error);

/// Advises how to find the cause of a failure that advice_for() does not know, from what the run
/// left: one to three lines.
std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces);

}  // namespace ddp::launch
