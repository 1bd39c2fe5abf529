#include "tests/support/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace ddp::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

int milliseconds_left(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return static_cast<int>(std::max<long long>(0, left.count()));
}

[[noreturn]] void run_child(const ChildOptions& options, int out, int err) {
  for (const auto& [name, value] : options.set) ::setenv(name.c_str(), value.c_str(), 1);
  for (const auto& name : options.unset) ::unsetenv(name.c_str());
  for (const int signal : options.ignore) ::signal(signal, SIG_IGN);
  if (options.own_group) ::setpgid(0, 0);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(125);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::vector<std::string> args = options.argv;
  std::vector<char*> argv;
  for (auto& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(125);
}

int status_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

ChildOptions in_shell(const std::string& script, ChildOptions program) {
  program.argv.insert(program.argv.begin(), {"/bin/sh", "-c", script, "sh"});
  return program;
}

ChildProgram::ChildProgram(const ChildOptions& options) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe failed");
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) run_child(options, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  pipes_[0] = out[0];
  pipes_[1] = err[0];
}

ChildProgram::~ChildProgram() {
  if (!reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : pipes_) {
    if (fd >= 0) ::close(fd);
  }
}

Paused::Paused(pid_t pid) : pid_(pid) { ::kill(pid_, SIGSTOP); }
Paused::~Paused() { resume(); }
void Paused::resume() {
  if (pid_ > 0) ::kill(pid_, SIGCONT);
  pid_ = 0;
}

void ChildProgram::signal(int number) const { ::kill(pid_, number); }

void ChildProgram::give_up(const std::string& what) const {
  throw std::runtime_error(what + "\n--- stdout\n" + text_[0] + "--- stderr\n" + text_[1]);
}

// False when the time is over or both ends are closed.
bool ChildProgram::read_more(SteadyClock::time_point deadline) {
  pollfd fds[] = {{pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}};
  if (pipes_[0] < 0 && pipes_[1] < 0) return false;
  if (::poll(fds, 2, milliseconds_left(deadline)) <= 0) return false;
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t got = ::read(fds[i].fd, buffer, sizeof buffer);
    if (got > 0) {
      text_[i].append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0) {
      ::close(pipes_[i]);
      pipes_[i] = -1;
    }
  }
  return true;
}

std::string ChildProgram::wait_for(const std::string& text, int times, Time bound) {
  const auto deadline = SteadyClock::now() + bound;
  for (;;) {
    for (const auto& all : text_) {
      int seen = 0;
      for (const auto& line : lines_of(all.substr(0, all.rfind('\n') + 1))) {
        if (line.find(text) != std::string::npos && ++seen == times) return line;
      }
    }
    if (!read_more(deadline)) give_up("did not see '" + text + "'");
  }
}

int ChildProgram::wait_exit(Time bound) {
  const auto deadline = SteadyClock::now() + bound;
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  for (;;) {
    // Its pipes are emptied meanwhile: a program must not hang because the test does not read.
    pollfd fds[] = {{pidfd, POLLIN, 0}, {pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}};
    if (::poll(fds, 3, milliseconds_left(deadline)) <= 0) break;
    if (fds[0].revents != 0) break;
    read_more(deadline);
  }
  ::close(pidfd);
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) give_up("did not exit");
  reaped_ = true;
  // What it wrote last may still be in the pipes.
  while (SteadyClock::now() < deadline && read_more(SteadyClock::now())) {
  }
  return status_code(status);
}

void ChildProgram::wait_all_gone(Time bound) {
  const auto deadline = SteadyClock::now() + bound;
  while (read_more(deadline)) {
  }
  if (pipes_[0] >= 0 || pipes_[1] >= 0) give_up("a descendant is still alive");
}

std::vector<std::string> ChildProgram::out_lines() const { return lines_of(out()); }
std::vector<std::string> ChildProgram::err_lines() const { return lines_of(err()); }

Finished run_to_end(const ChildOptions& options) {
  ChildProgram child(options);
  child.wait_all_gone();
  const int exit = child.wait_exit();
  return {exit, child.out(), child.err()};
}

bool has_program(const std::string& name) {
  return run_to_end({.argv = {"/bin/sh", "-c", "command -v " + name}}).exit == 0;
}

bool is_pending(pid_t pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("ShdPnd:", 0) != 0) continue;
    return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1) != 0;
  }
  return false;
}

void wait_until(const std::function<bool()>& holds, ChildProgram::Time bound) {
  const auto deadline = SteadyClock::now() + bound;
  while (!holds()) {
    if (SteadyClock::now() >= deadline) throw std::runtime_error("it never came true");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void wait_for_file(const std::string& path) {
  const auto deadline = SteadyClock::now() + ChildProgram::kBound;
  pollfd news{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK), POLLIN, 0};
  const auto folder = std::filesystem::path(path).parent_path();
  ::inotify_add_watch(news.fd, folder.c_str(), IN_CREATE | IN_MOVED_TO);
  bool there;
  while (!(there = ::access(path.c_str(), F_OK) == 0) &&
         ::poll(&news, 1, milliseconds_left(deadline)) > 0) {
    char events[4096];
    while (::read(news.fd, events, sizeof events) > 0) {
    }
  }
  ::close(news.fd);
  if (!there) throw std::runtime_error(path + " never came");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace ddp::test
