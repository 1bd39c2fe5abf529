// Finds the exception that ended a Python program in what the program wrote. Pure.
#pragma once

#include <optional>
#include <string>

namespace ddp::launch {

struct PythonError {
  std::string what;      // "ValueError: no such label"
  std::string place;     // "train.py, line 12": in the user's own code, if the traceback shows any
  std::string text{};    // all lines of its message
  std::string causes{};  // the messages of the exceptions that it was raised `from`, newest first
};

/// Of the last traceback that is whole in these words. Lines may begin with the prefix of torch's
/// excepthook or of a launcher's console.
std::optional<PythonError> last_python_error(const std::string& words);

/// What the error says, else the last line that says anything; for one line of a terminal.
std::string last_error_line(const std::string& words);

}  // namespace ddp::launch
