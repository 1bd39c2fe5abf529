// A reader of ddp-run's console that pauses.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/child_program.h"

namespace ddp::test {

/// A pipe that is not read until read_all().
class PausedReader {
 public:
  PausedReader() { REQUIRE(::pipe2(ends_, O_CLOEXEC) == 0); }
  ~PausedReader() {
    for (const int end : ends_) ::close(end);
  }
  PausedReader(const PausedReader&) = delete;
  PausedReader& operator=(const PausedReader&) = delete;

  /// The program with redirections of a shell, in which $pipe is this one.
  ChildOptions redirect(const std::string& redirections, const ChildOptions& program) const {
    return in_shell(
        "pipe=/proc/$PPID/fd/" + std::to_string(ends_[1]) + "; exec \"$@\" " + redirections,
        program);
  }
  void fill() const {
    ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string page(4096, 'x');
    while (::write(ends_[1], page.data(), page.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
  }
  void leave() { ::close(std::exchange(ends_[0], -1)); }
  /// Until all writers have closed it. `after_each` sees the text so far.
  template <typename AfterEach>
  std::string read_all(const AfterEach& after_each) {
    ::close(std::exchange(ends_[1], -1));
    std::string text;
    char buffer[65536];
    for (ssize_t got; (got = ::read(ends_[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
      after_each(text);
    }
    return text;
  }
  std::string read_all() {
    return read_all([](const std::string&) {});
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace ddp::test
