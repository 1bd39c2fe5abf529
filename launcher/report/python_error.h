// Finds the exception that ended a Python program in its output. Pure.
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

/// Returns the exception of the last complete traceback in the text. Lines may begin with the
/// prefix of torch's excepthook or of a launcher's console.
std::optional<PythonError> last_python_error(const std::string& words);

/// Returns the exception's message, else the last non-empty line, cut for a terminal.
std::string last_error_line(const std::string& words);

}  // namespace ddp::launch
