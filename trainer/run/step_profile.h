// Records a Chrome trace of a few steps with torch's own profiler (Kineto): operators, and kernels
// on a GPU, within the ranges ProfilerStep#N, forward, backward and optimizer.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/run_config.h"
#include "trainer/parallel/strategy/gradient_sync.h"

namespace ddp::train {

/// Each rank has one and writes its own file. Belongs to the training thread; records only that
/// thread's operators and those of the backward pass. Does nothing without profile.start.
class StepProfile {
 public:
  /// `last_step`: where the run ends. Throws UserError if profile.start is after it.
  StepProfile(const ProfileConfig& config, const std::string& run_dir, int rank, c10::Device device,
              int64_t last_step);
  /// Drops what was recorded and not written.
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  /// Whether start() is due before this step, or finish() after it.
  bool begins_with(int64_t step) const;
  bool recording() const { return recording_; }
  bool ends_with(int64_t step) const { return recording_ && step >= last_; }

  void start(int64_t step);
  /// Call around each step.
  void begin_step(int64_t step);
  void end_step() { step_.reset(); }
  /// Writes what has been recorded, if anything. `times`: the last recorded step's.
  void finish(const std::optional<SyncTimes>& times);

  /// Returns profile_rank_N.json in `run_dir`.
  static std::string file(const std::string& run_dir, int rank);
  /// Returns a line about the files, or why there are none; "" if none were requested. Call after
  /// the last step.
  const std::string& summary() const { return summary_; }
  /// Returns a line about the communication of gradients; "" if there was nothing to measure.
  const std::string& communication() const { return communication_; }

 private:
  std::string run_dir_;
  int rank_;
  c10::Device device_;
  int64_t first_;
  int64_t last_;
  int64_t first_recorded_ = 0;
  int64_t last_recorded_ = 0;
  bool recording_ = false;
  bool done_;
  std::optional<at::RecordFunction> step_;
  std::string summary_;
  std::string communication_;
};

}  // namespace ddp::train
