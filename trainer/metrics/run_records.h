// A run's records besides its log: metrics.jsonl, event files, Prometheus text; and the live
// line.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/metrics/metric_recorder.h"
#include "trainer/metrics/progress_line.h"
#include "trainer/metrics/run_info.h"
#include "trainer/metrics/tracker.h"
#include "trainer/runtime/log/log.h"

namespace ddp::train {

struct Config;

/// Exists on rank 0, for the training thread; flush() may be called from any thread. Never waits
/// for a disk or a terminal, and never throws: a failed write is logged once as a warning.
class RunRecords {
 public:
  using Clock = std::chrono::steady_clock;

  /// Creates the files selected by logging_config, in hydra.run.dir; Prometheus text in the folder
  /// DDP_SHM_DIR. `log` must outlive it.
  RunRecords(const Config& config, Log& log);

  /// Call before the first step, and after a rollback: the next step is `step` + 1. The first call
  /// starts the trackers of metrics_config.
  void begin_after(int64_t step);
  /// Publishes run_info.json.
  void write_info(const RunFacts& facts);

  /// Writes a record; the live line shows its loss, learning rate and speed from now on.
  void write(MetricRecord record);
  void write_text(TextRecord record);
  void write_confusion(ConfusionRecord record);
  void write_histogram(HistogramRecord record) { recorder_.write_histogram(std::move(record)); }
  /// Call after each step: redraws the live line, at most ten times a second. `epoch` from 1;
  /// `last_step`: where the run ends.
  void step_done(int64_t step, int64_t epoch, int64_t last_step);

  /// Seconds until `last_step`, at the pace of the steps so far; nullopt before the first of them.
  std::optional<double> seconds_left(int64_t step, int64_t last_step) const;

  /// Blocks until everything written so far is in the files, unless a disk blocks.
  void flush() { recorder_.flush(); }
  /// Call after the last record: waits for each tracker to have sent it, at most `patience`.
  void end_tracking(std::chrono::milliseconds patience);

 private:
  void say_troubles();
  void start_tracking();

  const Config& config_;
  Log& log_;
  std::vector<std::unique_ptr<Tracker>> trackers_;  // they read what the recorder still writes
  MetricRecorder recorder_;
  Progress progress_;
  Clock::time_point drawn_{};
  Clock::time_point began_ = Clock::now();
  int64_t began_after_ = 0;
};

}  // namespace ddp::train
