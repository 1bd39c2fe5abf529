#include "trainer/runtime/process/stop_signal.h"

#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "launcher/worker_contract.h"

namespace ddp::train {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
std::atomic<int> pending_signal{0};
std::atomic<int64_t> first_signal_at{0};  // ms
std::atomic<bool> has_launcher{false};
std::atomic<bool> report_wanted{false};
std::atomic<void (*)(int)> unsaved_handler{SIG_DFL};  // of SIGUSR1 without a StopSignal
sem_t changed;  // posted by the handler, at the first signal, and by the destructor
static_assert(std::atomic<int64_t>::is_always_lock_free);

// clock_gettime() may be called from a handler.
int64_t now_in_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// A signal to a whole job comes twice: directly, and passed on by a launcher, a wrapper or a
// scheduler, which on a busy machine takes its time. Only who has no launcher presses Ctrl-C twice.
int64_t same_signal_for(int signal) {
  constexpr int64_t kPassedOn = 2000;  // ms
  constexpr int64_t kTyped = 100;
  return signal == SIGINT && !has_launcher.load() ? kTyped : kPassedOn;
}

void on_signal(int signal) {
  int64_t unset = 0;
  first_signal_at.compare_exchange_strong(unset, now_in_ms());
  int none = 0;
  if (pending_signal.compare_exchange_strong(none, signal)) {
    ::sem_post(&changed);  // may be called from a handler
    return;
  }
  if (signal == SIGUSR1) return;
  if (none == signal && now_in_ms() - first_signal_at.load() < same_signal_for(signal)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_report_signal(int) { report_wanted.store(true, std::memory_order_relaxed); }

void on_preemption(int) { ::_exit(launch::kExitPreempted); }

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction old {};
  ::sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void end_when_preempted() {
  unsaved_handler = on_preemption;
  set_handler(SIGUSR1, on_preemption);
}

void ignore_preemption() { ::signal(SIGUSR1, SIG_IGN); }

StopSignal::StopSignal(std::function<void(int)> on_first) {
  ::sem_init(&changed, /*pshared=*/0, 0);
  if (on_first && pending() == 0) {
    teller_ = std::thread([on_first = std::move(on_first)] {
      while (::sem_wait(&changed) != 0) {  // EINTR
      }
      if (pending() != 0) on_first(pending());
    });
  }
  has_launcher = std::getenv(launch::kLocalRank) != nullptr;
  for (const int signal : kSignals) set_handler(signal, on_signal);
  set_handler(SIGUSR2, on_report_signal);
}

// The second of two that are one may come while the process ends, and a wish for a report any time:
// neither may kill a run that has saved.
StopSignal::~StopSignal() {
  ::sem_post(&changed);
  if (teller_.joinable()) teller_.join();
  if (pending() != 0) return;
  for (const int signal : kSignals)
    set_handler(signal, signal == SIGUSR1 ? unsaved_handler.load() : SIG_DFL);
}

int StopSignal::pending() { return pending_signal.load(std::memory_order_relaxed); }

std::chrono::milliseconds StopSignal::pending_for() {
  const bool arrived = pending_signal.load(std::memory_order_acquire) != 0;
  return std::chrono::milliseconds(arrived ? now_in_ms() - first_signal_at.load() : 0);
}

bool StopSignal::take_report_wish() { return report_wanted.exchange(false); }

}  // namespace ddp::train
