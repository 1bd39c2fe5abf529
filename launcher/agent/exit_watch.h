// Notices that workers of this node still run long after others have exited with 0: others of this
// node, or all of another one.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/run_result.h"
#include "launcher/base/worker.h"
#include "launcher/process/process_runner.h"
#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

class ExitWatch {
 public:
  /// `grace`: --exit-grace; 0: one line, nothing is ended.
  explicit ExitWatch(std::chrono::milliseconds grace) : grace_(grace) {}

  void begin_round();
  /// Call when a worker has exited with 0 on its own.
  void exited(Clock::time_point now);
  /// Call when all workers of other nodes have; may be called again.
  void exited_elsewhere(const PartlyDone& others, Clock::time_point now);
  /// Call after the workers were suspended.
  void forgive(Clock::duration suspended);
  /// When look() is due; nullopt: never.
  std::optional<Clock::time_point> next_look() const { return look_at_; }
  /// Prints the line when it is due. Returns one failure per worker that still runs once the grace
  /// period is over.
  std::vector<ProcessFailure> look(const std::vector<Worker>& workers, ProcessRunner& processes);

 private:
  std::chrono::milliseconds grace_;
  PartlyDone elsewhere_{};
  std::optional<Clock::time_point> first_exit_;  // in this round
  std::optional<Clock::time_point> look_at_;
};

}  // namespace ddp::launch
