// Ends a run whose evaluations no longer improve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

/// As Keras's EarlyStopping and transformers' EarlyStoppingCallback: an evaluation is progress when
/// it beats the best one so far by more than `min_delta`; `patience` evaluations in a row without
/// progress end the run. No patience: never.
class EarlyStopping {
 public:
  EarlyStopping(std::optional<int64_t> patience, double min_delta)
      : patience_(patience), min_delta_(min_delta) {}

  /// `score`: lower is better.
  void evaluated(double score);
  bool stops() const { return patience_ && without_progress_ >= *patience_; }
  /// Resets the best score, for example if another metric counts from now on.
  void forget();

  /// For the snapshot; "" before the first evaluation.
  std::string state() const;
  /// Throws RunError if `state` is damaged.
  void load_state(const std::string& state);

 private:
  std::optional<int64_t> patience_;
  double min_delta_;
  std::optional<double> best_;
  int64_t without_progress_ = 0;
};

}  // namespace ddp::train
