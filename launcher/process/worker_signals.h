// Decides which process of a worker gets a signal, and when.
#pragma once

#include <sys/types.h>

#include <set>
#include <utility>
#include <vector>

#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

/// Signals a worker that is a running child: only its first process if that catches the signal, as
/// it decides what its children get; else its process group, without what is below a process that
/// catches the signal. Shells catch signals, but do not pass them on: they count as if they did
/// not. Returns the processes below a shell that catch the signal: they may outlive it.
std::vector<pid_t> signal_worker_process(pid_t worker, int signal);

/// Holds signals back from workers that they would kill, which is most programs in their first
/// moments, and delivers each once its worker handles, ignores or blocks it. Below a shell the
/// topmost processes that catch it get it, and no others.
class HeldSignals : public PollHandler {
 public:
  /// Sends it to `workers` that can handle it, and later to the others. Returns how many others.
  int forward(int signal, const std::vector<pid_t>& workers);
  /// Keeps this signal for all workers of the next round.
  void keep_for_next_round(int signal) { held_.insert({kNextRound, signal}); }
  /// Call before a worker is reaped or given up. Unhandled signals are kept for the next round.
  void worker_ended(pid_t worker);
  void round_began(const std::vector<pid_t>& workers);

  void add_poll_fds(std::vector<pollfd>&) const override {}
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  static constexpr pid_t kNextRound = 0;
  static constexpr std::chrono::milliseconds kFirstPause{100};
  void deliver();

  std::set<std::pair<pid_t, int>> held_;  // worker or kNextRound, and signal
  Clock::time_point look_at_{};           // if a worker's signal is held
  std::chrono::milliseconds pause_{};     // until the next look
};

}  // namespace ddp::launch
