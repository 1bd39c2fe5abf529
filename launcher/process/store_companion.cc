#include "launcher/process/store_companion.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/base/command.h"
#include "launcher/base/errors.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_spec.h"
#include "launcher/rendezvous/store_server/socket_handover.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Pending connections belong to dead processes and must not reach the next store.
void refuse_waiting_connections(int listening_socket) {
  for (int fd; (fd = ::accept4(listening_socket, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
    ::close(fd);
}

std::string no_store(const std::string& why) {
  return "ddp-store, which hosts the workers' store, " + why + "; try --store=rank0";
}

}  // namespace

StoreCompanion::StoreCompanion(std::string program) : program_(std::move(program)) {}

StoreCompanion::~StoreCompanion() { stop(); }

void StoreCompanion::serve(int listening_socket) {
  if (listening_socket == socket_) refuse_waiting_connections(listening_socket);
  socket_ = listening_socket;
  awaited_ = true;
  in_use_ = false;
  warm_ = pid_ != 0;
}

bool StoreCompanion::serves(int listening_socket) const {
  return pid_ != 0 && listening_socket == socket_;
}

void StoreCompanion::stop() {
  awaited_ = in_use_ = false;
  socket_ = -1;
  if (pid_ != 0) ::kill(pid_, SIGKILL);
  pid_ = 0;
  close_control();
}

void StoreCompanion::close_control() {
  if (control_ >= 0) ::close(control_);
  control_ = -1;
}

std::optional<StoreLoss> StoreCompanion::handle_connection() {
  awaited_ = false;
  const int error = pid_ == 0 ? start() : 0;
  if (error != 0)
    return StoreLoss{{kExitFailed, 0}, no_store("cannot be executed: " + error_text(error))};
  in_use_ = hand_over_socket(control_, socket_);
  if (in_use_) ++handed_over_;
  // It just died or is unresponsive: take_exit() follows and starts a new one.
  if (!in_use_) ::kill(pid_, SIGKILL);
  return std::nullopt;
}

void StoreCompanion::take_reports() {
  bool ended = false;
  handed_over_ -= take_served_reports(control_, ended);
  if (ended) close_control();  // SIGCHLD follows and take_exit() handles it
}

int StoreCompanion::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return errno;
  control_ = ends[0];
  handed_over_ = 0;
  warm_ = false;
  WorkerSpec spec;
  spec.command = {program_, {"ddp-store"}};
  spec.environment = inherited_environment();
  int error = EAGAIN;  // out of processes
  try {
    PendingSpawn pending =
        begin_spawn(spec, {.in = ends[1], .out = STDERR_FILENO, .err = -1}, true);
    pid_ = pending.pid;
    error = finish_spawn(pending);
  } catch (const LaunchError&) {
  }
  ::close(ends[1]);
  if (error != 0) {
    pid_ = 0;  // the sweep reaps it
    close_control();
  }
  return error;
}

std::optional<StoreLoss> StoreCompanion::take_exit() {
  siginfo_t info{};
  if (pid_ == 0 || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  take_reports();
  close_control();
  const pid_t pid = std::exchange(pid_, 0);
  const bool served = handed_over_ <= 0;
  if (!std::exchange(in_use_, false) || (warm_ && !served)) {
    awaited_ = socket_ >= 0;
    return std::nullopt;
  }
  const bool by_itself = info.si_code == CLD_EXITED;
  const std::string how =
      describe_exit(by_itself ? ExitStatus{info.si_status, 0} : ExitStatus{0, info.si_status});
  StoreLoss loss{by_itself ? ExitStatus{kExitFailed, 0} : ExitStatus{0, info.si_status}, ""};
  loss.what =
      served
          ? fmt::format("the workers' store (ddp-store, pid {}) ended: {}; its contents are lost",
                        pid, how)
          : no_store(fmt::format("exited before it served the store ({})", how));
  return loss;
}

}  // namespace ddp::launch
