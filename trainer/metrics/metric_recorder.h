// Between the steps and the files: a thread of its own writes what a run records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Lives on rank 0. Never waits for a disk and never throws: records that a slow disk has no room
/// for, or that a sink cannot write, are lost, and take_troubles() reports it once. flush() may be
/// called from any thread, all else is for one.
class MetricRecorder {
 public:
  /// What waits for the disk: records beyond it are lost.
  static constexpr std::size_t kMostWaiting = 4096;

  /// The thread starts with the first record; without sinks there is none.
  explicit MetricRecorder(std::vector<std::unique_ptr<MetricSink>> sinks);
  /// Like flush(); drops whatever is left after that.
  ~MetricRecorder();
  MetricRecorder(const MetricRecorder&) = delete;
  MetricRecorder& operator=(const MetricRecorder&) = delete;

  bool empty() const { return !state_; }

  /// As MetricSink::begin_after(); never lost.
  void begin_after(int64_t step);
  void write(MetricRecord record);
  void write_text(TextRecord record);
  void write_histogram(HistogramRecord record);
  void write_confusion(ConfusionRecord record);

  /// Waits until all is written; not when nothing has been for 2 s. True when nothing is left.
  bool flush();
  /// What has gone wrong since the last call, a line each; the first failure of each sink alone.
  std::vector<std::string> take_troubles();

 private:
  struct State;
  using Job = std::function<void(MetricSink&)>;
  void add(Job job, bool may_be_lost = true);

  std::shared_ptr<State> state_;  // shared with the thread, which may be stuck in a write forever
};

}  // namespace ddp::train
