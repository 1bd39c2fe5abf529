#include "trainer/runtime/stop_signal.h"

#include <csignal>

#include <array>
#include <atomic>

namespace ddp::train {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
std::atomic<int> pending_signal{0};
std::atomic<bool> report_wanted{false};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  int none = 0;
  if (pending_signal.compare_exchange_strong(none, signal)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_report_signal(int) { report_wanted.store(true, std::memory_order_relaxed); }

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

StopSignal::StopSignal() {
  for (const int signal : kSignals) set_handler(signal, on_signal);
  set_handler(SIGUSR2, on_report_signal);
}

StopSignal::~StopSignal() {
  for (const int signal : kSignals) set_handler(signal, SIG_DFL);
  set_handler(SIGUSR2, SIG_DFL);
}

int StopSignal::pending() { return pending_signal.load(std::memory_order_relaxed); }

bool StopSignal::take_report_wish() { return report_wanted.exchange(false); }

}  // namespace ddp::train
