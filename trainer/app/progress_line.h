// Shows the progress of reading large files on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::train {

/// On a terminal one line that is redrawn; elsewhere a line every ten seconds.
class ProgressLine {
 public:
  ProgressLine(std::string what, uint64_t total_bytes);
  /// Ends the drawn line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void add(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now);
  std::string text(double seconds) const;

  std::string what_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace ddp::train
