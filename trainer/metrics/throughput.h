// Measures tokens per second, since the last lap and over the whole run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace ddp::train {

class Throughput {
 public:
  using Clock = std::chrono::steady_clock;

  /// `drain` waits for the work queued on the device: it belongs to the steps and must finish
  /// before the clock stops.
  explicit Throughput(std::function<void()> drain = [] {}) : drain_(std::move(drain)) {}

  void add(int64_t tokens) { lap_tokens_ += tokens; }

  /// Tokens per second since the last lap; time between pause() and resume() does not count.
  double lap() {
    pause();
    const double seconds = std::chrono::duration<double>(lap_time_).count();
    const double rate = seconds > 0.0 ? static_cast<double>(lap_tokens_) / seconds : 0.0;
    total_tokens_ += lap_tokens_;
    total_time_ += lap_time_;
    lap_tokens_ = 0;
    lap_time_ = {};
    resume();
    return rate;
  }

  /// Call around evaluation and snapshots, so that the figure only covers training steps.
  void pause() {
    drain_();
    lap_time_ += Clock::now() - since_;
    since_ = Clock::now();
  }
  void resume() { since_ = Clock::now(); }

  /// Average over all finished laps.
  double average() const {
    const double seconds = std::chrono::duration<double>(total_time_).count();
    return seconds > 0.0 ? static_cast<double>(total_tokens_) / seconds : 0.0;
  }
  double seconds_since_start() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  std::function<void()> drain_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point since_ = start_;
  Clock::duration lap_time_{};
  Clock::duration total_time_{};
  int64_t lap_tokens_ = 0;
  int64_t total_tokens_ = 0;
};

/// Model FLOPs utilization: the work of all ranks as a share of their devices' peak. `peak`: FLOP/s
/// of one rank's device.
inline double model_flops_utilization(double tokens_per_second, double per_token, double peak,
                                      int64_t ranks) {
  return tokens_per_second * per_token / (peak * static_cast<double>(ranks));
}

}  // namespace ddp::train
