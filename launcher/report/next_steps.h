// Advises how to find a failure's cause, unknown to advice.h, from what the run left. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/report/python_error.h"

namespace ddp::launch {

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

/// Returns one to three lines.
std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces);

}  // namespace ddp::launch
