// Measures the parts of a start, from the start of the process to the first step.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "trainer/runtime/process/start_time.h"

namespace ddp::train {

class StartTimes {
 public:
  /// `began`: Unix seconds, of the first part.
  explicit StartTimes(double began = process_start_unix_seconds()) : since_(began) {}

  /// Records the part that ends now.
  void end_of(std::string part) {
    const double now = unix_seconds();
    parts_.emplace_back(std::move(part), now - since_);
    since_ = now;
  }

  /// Seconds, in order.
  const std::vector<std::pair<std::string, double>>& parts() const { return parts_; }
  /// "Start: 2.31 s: program 0.42, first step 1.89"
  std::string text() const {
    double total = 0.0;
    std::string list;
    for (const auto& [name, seconds] : parts_) {
      total += seconds;
      list += fmt::format("{} {} {:.2f}", list.empty() ? ":" : ",", name, seconds);
    }
    return fmt::format("Start: {:.2f} s{}", total, list);
  }

 private:
  double since_;
  std::vector<std::pair<std::string, double>> parts_;
};

}  // namespace ddp::train
