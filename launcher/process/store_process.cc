#include "launcher/process/store_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/store/store_service.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestNote = 1024;

// Standard error is the agent's, for what ends a process with a message.
constexpr int kControl = STDIN_FILENO, kSource = STDOUT_FILENO;

// The far end of a channel for connections was closed: its round is over.
bool at_end(int source) {
  char byte;
  return ::recv(source, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// The agent's handled signals stay blocked: a store ends with its round.
[[noreturn]] void run_store(int source, int control, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitFailed);  // the parent died before the line above
  ::prctl(PR_SET_NAME, "ddp-store");
  ::setsid();
  ::dup2(control, kControl);
  ::dup2(source, kSource);
  close_all_from(STDERR_FILENO + 1);
  int code = kExitFailed;
  try {
    serve_store(kSource, kControl);
    code = kExitDone;
  } catch (const std::exception& error) {
    const std::string note = fmt::format("the workers' store: {}", error.what());
    ::send(kControl, note.data(), note.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::_exit(code);
}

StoreLoss cannot_start(int error) {
  return {{kExitFailed, 0},
          fmt::format("the workers' store cannot be started: {}; set "
                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 to leave it to rank 0",
                      error_text(error))};
}

}  // namespace

void StoreProcess::serve(int source) {
  stop();
  if (source < 0) return;
  source_ = Descriptor(::fcntl(source, F_DUPFD_CLOEXEC, 3));
  if (source_.get() < 0)
    throw LaunchError(kExitFailed, "cannot serve the workers' store: " + error_text(errno));
  awaited_ = true;
}

// It holds nothing but sockets and memory, so that it dies at once.
void StoreProcess::stop() {
  awaited_ = false;
  source_.reset();
  control_.reset();
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

std::optional<StoreLoss> StoreProcess::handle_client() {
  awaited_ = false;
  if (at_end(source_.get())) return std::nullopt;
  auto [ours, theirs] = socket_pair();
  if (ours.get() < 0) return cannot_start(errno);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) run_store(source_.get(), theirs.get(), parent);
  if (pid_ < 0) {
    pid_ = 0;
    return cannot_start(errno);
  }
  control_ = std::move(ours);
  return std::nullopt;
}

std::vector<std::string> StoreProcess::take_notes() {
  std::vector<std::string> notes;
  std::array<char, kLongestNote> text{};
  ssize_t got = 0;
  while ((got = ::recv(control_.get(), text.data(), text.size(), MSG_DONTWAIT)) > 0)
    notes.emplace_back(text.data(), static_cast<std::size_t>(got));
  const bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
  if (!later) control_.reset();  // SIGCHLD follows, and take_exit() handles it
  return notes;
}

std::optional<StoreLoss> StoreProcess::take_exit() {
  siginfo_t info{};
  if (pid_ == 0 || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  const pid_t pid = std::exchange(pid_, 0);
  const bool by_itself = info.si_code == CLD_EXITED;
  const ExitStatus exit = exit_status_of(info.si_code, info.si_status);
  return StoreLoss{by_itself ? ExitStatus{kExitFailed, 0} : exit,
                   fmt::format("the workers' store (pid {}) ended: {}; its contents are lost", pid,
                               describe_exit(exit))};
}

}  // namespace ddp::launch
