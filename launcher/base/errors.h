// Errors that end ddp-run.
#pragma once

#include <stdexcept>
#include <string>

namespace ddp::launch {

/// Ends ddp-run with one line, "error: <what>", and this exit code.
class LaunchError : public std::runtime_error {
 public:
  LaunchError(int exit_code, const std::string& what)
      : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Throws LaunchError with exit code 2.
[[noreturn]] void usage_error(const std::string& what);

/// "No such file or directory"; unlike strerror, thread-safe.
std::string error_text(int error_number);

}  // namespace ddp::launch
