// One line that shows a run's progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

struct Progress {
  int64_t epoch = 0;  ///< From 1.
  int64_t step = 0;
  int64_t last_step = 0;  ///< Last step of the whole run; 0: unknown.
  std::optional<double> loss{};
  std::optional<double> eval_loss{};
  double learning_rate = 0.0;
  double per_second = 0.0;
  std::string unit = "tokens";  ///< Unit of per_second.
  std::optional<double> seconds_left{};
  int64_t memory = 0;  ///< Bytes; 0: unknown.
};

/// "Epoch 2 | 1200/5000 [####------]  24 % | loss 2.3124 | val 2.4018 | lr 3.0e-04 | 12.3k tok/s |
/// 3:12 left | 812 MB". At most `width` columns: items that do not fit are dropped from the right.
std::string progress_line(const Progress& progress, int width);

/// 75 -> "1:15", 3700 -> "1:01:40", 200000 -> "2 d 7 h".
std::string duration_text(double seconds);

}  // namespace ddp::train
