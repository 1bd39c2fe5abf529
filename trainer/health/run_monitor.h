// Reports a rank's progress to the launcher and to the fault plan.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/config/value_types.h"
#include "trainer/health/fault_plan.h"
#include "trainer/health/heartbeat_file.h"
#include "trainer/health/phase.h"
#include "trainer/health/start_pulse.h"
#include "trainer/health/start_times.h"
#include "trainer/health/step_times.h"

namespace ddp::train {

struct Config;

/// Seconds until the next heartbeat if hang_timeout_s is automatic: max(3 s, 5 median steps),
/// on a GPU 5 of the longest, as the host runs ahead of the device; before the first step has been
/// made promise_of_start(), before the fifth max(20 s, 5 of the longest).
double automatic_promise(const StepTimes& times, bool on_gpu);

/// A rank's time in a step without waiting for others, seconds. On a GPU the host's time: it queues
/// the forward pass and continues.
struct OwnTimes {
  double data = 0.0;
  double forward = 0.0;
};

/// Belongs to the training thread. Does not watch anything itself: ddp-run does.
class RunMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  /// Reads DDP_HEARTBEAT_FILE, DDP_FAULT_PLAN and the attempt from the environment. `on_gpu`: the
  /// host runs ahead of the device, so the longest step counts and not the median. `start`: the
  /// parts of the start that are over. `waits`: as StartPulse's, which on CPUs repeats heartbeats
  /// until the first step is done.
  RunMonitor(const Config& config, int rank, int world_size, bool on_gpu,
             StartTimes start = StartTimes(), StartPulse::Waits waits = nullptr);
  ~RunMonitor() { withdraw_promise(); }
  RunMonitor(const RunMonitor&) = delete;
  RunMonitor& operator=(const RunMonitor&) = delete;

  /// Call before the ranks meet for the first time. Promises promise_of_start(), or the user's
  /// limit if set, but at least 30 s.
  void joining();
  /// Before the group's first step: snapshot, data. promise_of_start(), or the user's limit if that
  /// is longer, or without a limit where `unlimited`: how long that takes is decided elsewhere.
  void starting(bool unlimited);
  /// Ends a part of the start; the next one has its own promise.
  void started(std::string part);
  const StartTimes& start_times() const { return start_; }
  /// Withdraws the promise: a reader of a run's last lines may take arbitrarily long.
  void withdraw_promise() { beat(Phase::kEnd, "", 0.0); }
  /// Begins a step, numbered from 1.
  void begin_step(int64_t step);
  void end_step();
  /// Returns the seconds since begin_step().
  double seconds_in_step() const {
    return std::chrono::duration<double>(Clock::now() - step_began_).count();
  }
  /// Announces that rank 0 is busy and the others wait for it somewhere in the next step: until
  /// that is over every heartbeat promises at least `seconds`.
  void expect_delay(double seconds) { least_promise_ = std::max(least_promise_, seconds); }
  /// `waiting`: the collective whose result is awaited.
  void enter(Phase phase, std::string_view waiting = "");
  /// As enter(), before something that may take up to `seconds` (0: as long as it likes) without a
  /// further heartbeat.
  void enter_for(Phase phase, double seconds);
  /// As enter(), without a fault: this part of the phase waits for peers in `collective`.
  void meet(Phase phase, std::string_view collective);

  /// Work between two steps: while it exists every heartbeat promises at least `seconds`.
  class LongWork {
   public:
    LongWork(RunMonitor& monitor, double seconds);
    ~LongWork() { monitor_.least_promise_ = before_; }
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;

   private:
    RunMonitor& monitor_;
    double before_;
  };

  const FaultPlan& faults() const { return faults_; }
  const StepTimes& times() const { return times_; }
  /// Wall time of this step up to the backward pass, which reveals a slow rank: the rest is spent
  /// waiting for the slowest.
  double seconds_before_backward() const { return before_backward_; }

 private:
  double promise() const;
  double promise_of_loading() const;
  void change_phase(Phase next);
  void beat(Phase phase, std::string_view waiting, double seconds);

  AutoNumber hang_timeout_;
  bool loading_ = false;  // snapshot, data or model, which may be large
  bool alone_;
  bool on_gpu_;
  FaultPlan faults_;
  HeartbeatFile file_;
  std::optional<StartPulse> pulse_;  // until the first step is done
  StepTimes times_;
  StartTimes start_;
  double least_promise_ = 0.0;
  int64_t step_ = 0;
  std::string last_collective_ = "none";
  Clock::time_point step_began_{};
  Phase phase_ = Phase::kStart;
  Clock::time_point phase_began_{};
  OwnTimes own_{};       // of the step in progress
  OwnTimes last_own_{};  // of the last one
  double before_backward_ = 0.0;
};

}  // namespace ddp::train
