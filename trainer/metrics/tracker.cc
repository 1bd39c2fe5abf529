#include "trainer/metrics/tracker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "trainer/runtime/files/module_path.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

/// An installation's, a wheel's, or that of the sources around a build tree; empty if none.
fs::path find_script() {
  for (const char* path :
       {"../../../share/ddp_run/track_run.py", "../../../../../share/ddp_run/track_run.py",
        "../../../scripts/track_run.py"}) {
    if (auto found = find_module(path); !found.empty()) return found.lexically_normal();
  }
  return {};
}

/// As ddp-run chooses a script's Python: PYTHON_EXEC, that of the environment in which trainer is
/// installed, the first on PATH.
std::string python_for(const fs::path& script) {
  const char* chosen = std::getenv("PYTHON_EXEC");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const fs::path prefix = script.parent_path().parent_path().parent_path();
  std::error_code ignored;
  const bool environment =
      fs::exists(prefix / "pyvenv.cfg", ignored) || fs::exists(prefix / "conda-meta", ignored);
  return environment ? prefix / "bin/python3" : fs::path("python3");
}

/// Returns an error number. The process inherits `streams` alone: peers see the end of this one by
/// its sockets.
int spawn(const std::vector<std::string>& command, int streams, pid_t& pid) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_adddup2(&files, streams, stream);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t stopping;
  sigset_t all;
  ::sigemptyset(&stopping);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    ::sigaddset(&stopping, signal);
  ::sigfillset(&all);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &stopping);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

Tracker::Tracker(const std::string& folder, std::string target, std::string_view mode, Log& log)
    : target_(std::move(target)), log_(log) {
  const fs::path script = find_script();
  if (script.empty()) {
    log_line("error: this installation lacks share/ddp_run/track_run.py");
    return;
  }
  std::vector<std::string> command = {python_for(script), script, folder, "--to", target_};
  if (!mode.empty()) command.push_back(fmt::format("--mode={}", mode));
  by_hand_ = fmt::format("; afterwards: {}", fmt::join(command, " "));
  command.emplace_back("--with-trainer");
  std::array<int, 2> ends{-1, -1};
  int error = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0 ? 0 : errno;
  process_ = Descriptor(ends[0]);
  const Descriptor streams(ends[1]);
  if (error == 0) error = spawn(command, streams, pid_);
  if (error == 0) return;
  pid_ = -1;
  log_line(fmt::format("error: cannot start {}: {}; install Python 3, or set PYTHON_EXEC to one",
                       command.front(), std::strerror(error)));
}

bool Tracker::log_some(std::chrono::milliseconds patience) {
  constexpr std::size_t kLongestLine = 65536;
  std::array<char, 4096> buffer{};
  pollfd ready{process_, POLLIN, 0};
  if (pid_ < 0 || ::poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return false;
  const ssize_t count = ::recv(process_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  rest_.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
    log_line(std::string_view(rest_).substr(0, end));
  if (!rest_.empty() && (count <= 0 || rest_.size() > kLongestLine))
    log_line(std::exchange(rest_, {}));
  if (count > 0) return true;
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  if (status != 0 && !has_failed_)
    log_line(WIFSIGNALED(status)
                 ? fmt::format("error: killed by signal {}", WTERMSIG(status))
                 : fmt::format("error: ended with exit code {}", WEXITSTATUS(status)));
  return false;
}

void Tracker::log_line(std::string_view line) {
  constexpr std::string_view kError = "error: ";
  if (!line.starts_with(kError)) return log_.info(line);
  has_failed_ = true;
  log_.warning(fmt::format("metrics_config.{}: {}; training continues without it{}", target_,
                           line.substr(kError.size()), by_hand_));
}

void Tracker::wait_until(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  milliseconds left{};
  while (pid_ >= 0 && (left = std::chrono::ceil<milliseconds>(
                           deadline - std::chrono::steady_clock::now())) > milliseconds(0))
    log_some(left);
  if (pid_ < 0) return;
  log_.warning(fmt::format(
      "metrics_config.{}: process {} still sends and is left to itself (ddp-run ends what outlives "
      "its rank){}",
      target_, std::exchange(pid_, -1), by_hand_));
}

}  // namespace ddp::train
