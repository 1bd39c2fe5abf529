// What ddp-run itself says: whole lines on stderr, one write each, prefixed so that they stand out
// from the workers'.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

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

/// Writes all bytes, whatever the signals and the size; 0, or the errno at which it gave up.
int write_fully(int fd, std::string_view text);
/// "ddp-run: <text>\n" on stderr.
void say(std::string_view text);
/// "error: <text>\n" on stderr.
void say_error(std::string_view text);
/// "No such file or directory", without the thread trouble of strerror.
std::string error_text(int error_number);

}  // namespace ddp::launch
