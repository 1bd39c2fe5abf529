#include "launcher/process/signal_mailbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kDefaultEnding[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
constexpr int kPassedOn[] = {SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH, kStacksSignal};

// Tag of our queued signals, to tell them from those queued by other parents.
constexpr int kPassedOnMark = 0x0dd00000;

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalMailbox SignalMailbox::block() {
  SignalMailbox mailbox;
  ::sigemptyset(&mailbox.received_);
  ::sigemptyset(&mailbox.ending_);
  mailbox.hangup_ignored_ = is_ignored(SIGHUP);
  ::sigaddset(&mailbox.received_, SIGCHLD);
  for (const int signal : kPassedOn) ::sigaddset(&mailbox.received_, signal);
  for (const int signal : kDefaultEnding) {
    if (signal != SIGHUP || !mailbox.hangup_ignored_) ::sigaddset(&mailbox.received_, signal);
  }
  ::sigprocmask(SIG_SETMASK, &mailbox.received_, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // hitting ulimit -f ends a log, not the job
  return mailbox;
}

void SignalMailbox::handle(const std::vector<int>& stop_signals) {
  for (const int signal : stop_signals) {
    if (signal == SIGHUP && hangup_ignored_) continue;
    ::sigaddset(&ending_, signal);
    ::sigaddset(&received_, signal);
  }
  for (const int signal : kDefaultEnding) {
    if (!ends_job(signal)) ::sigdelset(&received_, signal);
  }
  ::sigprocmask(SIG_SETMASK, &received_, nullptr);
}

bool SignalMailbox::ends_job(int signal) const { return ::sigismember(&ending_, signal) == 1; }

std::optional<ReceivedSignal> SignalMailbox::next(std::optional<Clock::time_point> deadline) const {
  siginfo_t info{};
  timespec limit{};
  int signal = ::sigtimedwait(&received_, &info, &limit);
  const bool was_pending = signal > 0;
  while (signal < 0) {
    if (deadline) limit = time_until(*deadline);
    signal = ::sigtimedwait(&received_, &info, deadline ? &limit : nullptr);
    if (signal < 0 && errno == EAGAIN) return std::nullopt;
  }
  const int value = info.si_value.sival_int;
  return ReceivedSignal{signal, origin_of(signal, info.si_code, info.si_pid, value), was_pending};
}

Descriptor SignalMailbox::open_fd() const {
  Descriptor fd(::signalfd(-1, &received_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.get() < 0) throw LaunchError(kExitFailed, "cannot receive signals: " + error_text(errno));
  return fd;
}

SignalOrigin origin_of(int signal, int code, pid_t sender, int value) {
  if (code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT)) return {Sender::kKeyboard};
  if (sender != ::getppid()) return {Sender::kOther};
  if (code != SI_QUEUE || value < kPassedOnMark) return {Sender::kParent};
  return {Sender::kDdpRun, value - kPassedOnMark};
}

void pass_on(pid_t process, int signal, int requests) {
  sigval value{};
  value.sival_int = kPassedOnMark + requests;
  ::sigqueue(process, signal, value);
}

}  // namespace ddp::launch
