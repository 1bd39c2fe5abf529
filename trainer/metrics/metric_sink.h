// The interface to destinations of a run's metrics: metrics.jsonl, TensorBoard, Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/metrics/confusion_matrix.h"
#include "trainer/metrics/histogram.h"

namespace ddp::train {

/// The numbers of one step (split train) or of one evaluation (split eval or test).
struct MetricRecord {
  int64_t step = 0;    ///< Optimizer steps finished, over all restarts.
  double epoch = 0.0;  ///< Passes over the training data so far, a fraction.
  std::string split;
  std::vector<std::pair<std::string, double>>
      values;         ///< loss, lr, grad_norm, tokens_per_second...
  double time = 0.0;  ///< Unix time, seconds.
};

/// Text that belongs to a step, such as a generated sample.
struct TextRecord {
  int64_t step = 0;
  std::string tag;
  std::string text;
  double time = 0.0;
};

/// The distribution of a tensor's values at a step.
struct HistogramRecord {
  int64_t step = 0;
  std::string tag;
  Histogram histogram;
  double time = 0.0;
};

/// A classifier's confusions in an evaluation.
struct ConfusionRecord {
  int64_t step = 0;
  std::string split;  ///< eval or test
  ConfusionMatrix matrix;
  double time = 0.0;
};

/// One kind of file. Used by one thread, that of a MetricRecorder: may block on the disk, and
/// throws RunError if writing fails. Steps never decrease except by begin_after().
class MetricSink {
 public:
  virtual ~MetricSink() = default;

  /// The next step is `step` + 1: records of later ones, from an earlier attempt or from before a
  /// rollback, are removed. Called before all else.
  virtual void begin_after(int64_t step) = 0;
  virtual void write(const MetricRecord& record) = 0;
  /// No-ops in a sink that does not support such records.
  virtual void write_text(const TextRecord& /*record*/) {}
  virtual void write_histogram(const HistogramRecord& /*record*/) {}
  virtual void write_confusion(const ConfusionRecord& /*record*/) {}
};

}  // namespace ddp::train
