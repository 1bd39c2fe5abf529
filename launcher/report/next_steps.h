// Where advice.h knows no remedy: how to find the cause, from what the run has left. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/report/python_error.h"

namespace ddp::launch {

/// What a failed rank has left.
struct Traces {
  std::string words;                   // its last lines, its error file
  std::optional<PythonError> error{};  // the exception that ended it
  std::string output{};                // where its whole output is; empty: not kept, or none
  std::string logs{};                  // the folder of its log files; empty: not kept
  std::string elsewhere{};             // the host that has its files, if it is not this one
  int world_size = 0;                  // 0: not known
  bool several_nodes = false;
};

/// The line of the user's that an exception points to.
std::string look_at(const PythonError& error);

/// Never empty; at most three lines.
std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces);

}  // namespace ddp::launch
