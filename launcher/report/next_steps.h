// Where advice.h knows no remedy: how to find the cause, from what the run has left. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

struct PythonError {
  std::string what;   // "ValueError: no such label"
  std::string place;  // "train.py, line 12": in the user's own code, if the traceback shows any
};

/// Of the last traceback that is whole in these words.
std::optional<PythonError> last_python_error(const std::string& words);

/// What a failed rank has left.
struct Traces {
  std::string words;        // its last lines, its error file
  std::string output{};     // where its whole output is; empty: not kept
  std::string elsewhere{};  // the host that has its files, if it is not this one
  int world_size = 0;       // 0: not known
};

/// Never empty; at most three lines.
std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces);

}  // namespace ddp::launch
