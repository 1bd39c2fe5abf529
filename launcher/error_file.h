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

}  // namespace ddp::launch
