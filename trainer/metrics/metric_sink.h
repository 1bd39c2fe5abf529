// Where the numbers of a run go: the log, metrics.jsonl, TensorBoard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::train {

/// The numbers of one step (split train) or of one evaluation (split eval or test).
struct MetricRecord {
  int64_t step = 0;    ///< Optimizer steps finished, over all restarts.
  double epoch = 0.0;  ///< Passes over the training data so far, a fraction.
  std::string_view split;
  std::vector<std::pair<std::string, double>>
      values;         ///< loss, lr, grad_norm, tokens_per_second...
  double time = 0.0;  ///< Unix time, seconds.
};

/// Used on rank 0, by one thread. Never delays a step and never throws: what cannot be written is
/// dropped, and said once in the log.
class MetricSink {
 public:
  virtual ~MetricSink() = default;

  virtual void write(const MetricRecord& record) = 0;
  /// Text that belongs to a step, such as a generated sample.
  virtual void write_text(int64_t step, const std::string& tag, const std::string& text) = 0;
  /// All that was written is in the file when this returns.
  virtual void flush() = 0;
};

}  // namespace ddp::train
