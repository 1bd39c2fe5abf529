#include "launcher/store_companion.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/agent_store/socket_handover.h"
#include "launcher/console.h"
#include "launcher/failure_report.h"
#include "launcher/spawn.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_env.h"

namespace ddp::launch {
namespace {

constexpr int kMostVainStarts = 3;

// What waits there belongs to processes that are dead: it must not reach the next store.
void refuse_waiting_connections(int listening_socket) {
  for (int fd; (fd = ::accept4(listening_socket, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
    ::close(fd);
}

LaunchError no_store(const std::string& why) {
  return LaunchError(kExitFailed, "ddp-store, which serves the workers' store, " + why +
                                      "; with --store=rank0 rank 0 serves it");
}

}  // namespace

StoreCompanion::StoreCompanion(std::string program) : program_(std::move(program)) {}

StoreCompanion::~StoreCompanion() { stop(); }

void StoreCompanion::serve(int listening_socket) {
  if (listening_socket == socket_) refuse_waiting_connections(listening_socket);
  socket_ = listening_socket;
  awaited_ = true;
}

bool StoreCompanion::serves(int listening_socket) const {
  return pid_ != 0 && listening_socket == socket_;
}

void StoreCompanion::stop() {
  awaited_ = false;
  socket_ = -1;
  if (pid_ != 0) ::kill(pid_, SIGKILL);
  pid_ = 0;
  close_control();
}

void StoreCompanion::close_control() {
  if (control_ >= 0) ::close(control_);
  control_ = -1;
}

void StoreCompanion::handle_connection() {
  if (pid_ == 0) start();
  awaited_ = false;
  // Where this fails the companion has just died: take_exit() will see it, and await again.
  if (hand_over_socket(control_, socket_)) ++handed_over_;
}

void StoreCompanion::take_reports() {
  bool ended = false;
  handed_over_ -= take_served_reports(control_, ended);
  if (ended) close_control();  // SIGCHLD follows, take_exit() deals with it
}

void StoreCompanion::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw no_store("cannot be started: " + error_text(errno));
  control_ = ends[0];
  handed_over_ = 0;
  WorkerSpec spec;
  spec.command = {program_, {"ddp-store"}};
  spec.environment = inherited_environment();
  PendingSpawn pending = begin_spawn(spec, {.in = ends[1], .out = STDERR_FILENO, .err = -1}, true);
  ::close(ends[1]);
  pid_ = pending.pid;
  if (const int error = finish_spawn(pending); error != 0)
    throw no_store("cannot be executed: " + error_text(error));
}

std::optional<std::string> StoreCompanion::take_exit() {
  siginfo_t info{};
  if (pid_ == 0 || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  const bool by_itself = info.si_code == CLD_EXITED;
  const std::string how =
      describe_exit(by_itself ? ExitStatus{info.si_status, 0} : ExitStatus{0, info.si_status});
  take_reports();
  const bool served = handed_over_ <= 0;
  close_control();
  const pid_t pid = std::exchange(pid_, 0);
  vain_starts_ = served ? 0 : vain_starts_ + 1;
  if (!served && (by_itself || vain_starts_ >= kMostVainStarts))
    throw no_store(fmt::format("ended before it served ({})", how));
  awaited_ = socket_ >= 0;
  return fmt::format(
      "the workers' store (ddp-store, pid {}) ended: {}; what workers kept there is lost", pid,
      how);
}

}  // namespace ddp::launch
