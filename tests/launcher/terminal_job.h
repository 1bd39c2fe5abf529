// A program as a user of a terminal sees it.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::test {

/// A program on a terminal of its own, as the leader of its session.
class TerminalJob {
 public:
  explicit TerminalJob(std::vector<std::string> argv) {
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    std::vector<char*> words;
    for (auto& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(125);
  }
  ~TerminalJob() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    ::close(terminal_);
  }
  void type(char key) const { CHECK(::write(terminal_, &key, 1) == 1); }
  void type(const std::string& keys) const {
    for (const char key : keys) type(key);
  }
  void resize(int rows, int columns) const {
    const winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0,
                       0};
    CHECK(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
  }
  bool shows(const std::string& text) {
    pollfd terminal{terminal_, POLLIN, 0};
    char buffer[4096];
    while (text_.find(text) == std::string::npos) {
      if (::poll(&terminal, 1, 30'000) <= 0) return false;
      const auto got = ::read(terminal_, buffer, sizeof buffer);
      if (got <= 0) return false;
      text_.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  int wait_exit() {
    int status = 0;
    while (!shows("nothing that is ever shown") && ::waitpid(pid_, &status, 0) != pid_) {
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int terminal_ = -1;
  std::string text_;
};

}  // namespace ddp::test
