// Reads torchelastic's error file, as a worker may have written it: full form, short form, or
// anything at all.
#pragma once

#include <optional>
#include <string>

#include "launcher/base/error_file.h"

namespace ddp::launch {

struct ErrorMessage {
  std::string text;       // what went wrong
  std::string callstack;  // py_callstack of the full form; may be empty
  double time = 0;        // Unix seconds; 0: unknown
  int code = 0;           // errorCode of the full form; 0: unknown
};

/// Returns nullopt if there is no file or its path is empty. For a file that is empty, malformed,
/// too large, not regular or on a disk that does not answer, the message explains that. Never
/// throws, never blocks.
std::optional<ErrorMessage> read_error_file(const ErrorFile& error_file) noexcept;

/// Returns when the file was written, in Unix seconds; infinity if there is none.
double error_file_time(const ErrorFile& error_file);

/// Returns the same JSON with `exit_code` (-signal) added for an enclosing job's error file, as
/// torchrun does; empty if there is no error file or it is malformed.
std::string error_file_to_pass_on(const ErrorFile& error_file, int exit_code) noexcept;

}  // namespace ddp::launch
