// What a run leaves besides its log: metrics.jsonl, event files, Prometheus text; and the live
// line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/metrics/metric_recorder.h"
#include "trainer/metrics/progress_line.h"
#include "trainer/metrics/run_info.h"
#include "trainer/runtime/log/log.h"

namespace ddp::train {

/// Lives on rank 0, for the training thread; flush() is for any. Never waits for a disk or a
/// terminal, and never throws: what cannot be written is a warning in the log, once.
class RunRecords {
 public:
  using Clock = std::chrono::steady_clock;

  /// The files that logging_config asks for, in hydra.run.dir; Prometheus text in the folder that
  /// DDP_SHM_DIR names. `log` outlives it.
  RunRecords(const Config& config, Log& log);

  /// Before the first step, and after a rollback: the next step is `step` + 1.
  void begin_after(int64_t step);
  /// Publishes run_info.json.
  void write_info(const RunFacts& facts);

  /// Also what the live line shows of loss, learning rate and speed from now on.
  void write(MetricRecord record);
  void write_text(TextRecord record);
  void write_confusion(ConfusionRecord record);
  void write_histogram(HistogramRecord record) { recorder_.write_histogram(std::move(record)); }
  /// After each step: draws the live line anew, ten times a second at most. `epoch` from 1;
  /// `last_step`: where the run ends.
  void step_done(int64_t step, int64_t epoch, int64_t last_step);

  /// Until `last_step`, at the pace of the steps made so far; nullopt before the first of them.
  std::optional<double> seconds_left(int64_t step, int64_t last_step) const;

  /// Everything written so far is in the files when this returns, unless a disk blocks.
  void flush() { recorder_.flush(); }

 private:
  void say_troubles();

  const Config& config_;
  Log& log_;
  MetricRecorder recorder_;
  Progress progress_;
  Clock::time_point drawn_{};
  Clock::time_point began_ = Clock::now();
  int64_t began_after_ = 0;
};

}  // namespace ddp::train
