// torchelastic's error file, as a worker may have written it: full form, short form, or anything at
// all.
#pragma once

#include <optional>
#include <string>

namespace ddp::launch {

struct ErrorMessage {
  std::string text;       // what went wrong, first
  std::string callstack;  // py_callstack of the full form; may be empty
};

/// nullopt when there is no file or no name. A file that is empty, malformed, huge or no regular
/// file gives a message that says so. Never throws and never waits.
std::optional<ErrorMessage> read_error_file(const std::string& path) noexcept;

/// The same JSON with `exit_code` (-signal) in it, for the error file of a job around this one, as
/// torchrun passes it on; empty where there is no error file or it is not understood.
std::string error_file_to_pass_on(const std::string& path, int exit_code) noexcept;

}  // namespace ddp::launch
