// Writes a run's records to files from a separate thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Exists on rank 0. Never waits for a disk and never throws: records beyond the queue of a slow
/// disk, or that a sink cannot write, are lost, and take_troubles() reports it once.
/// Single-threaded, except flush(), which may be called from any thread.
class MetricRecorder {
 public:
  /// Maximum number of pending records; further ones are lost.
  static constexpr std::size_t kMostWaiting = 4096;

  /// The thread starts with the first record; without sinks there is none.
  explicit MetricRecorder(std::vector<std::unique_ptr<MetricSink>> sinks);
  /// Like flush(); drops anything left after that.
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

  /// Waits until all is written, or for 2 s without progress. Returns true if nothing is left.
  bool flush();
  /// Returns the errors since the last call, a line each; only the first failure of each sink.
  std::vector<std::string> take_troubles();

 private:
  struct State;
  using Job = std::function<void(MetricSink&)>;
  void add(Job job, bool may_be_lost = true);

  std::shared_ptr<State> state_;  // shared with the thread, which may be stuck in a write forever
};

}  // namespace ddp::train
