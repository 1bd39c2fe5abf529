// logging_config, metrics_config, profile and hydra: a run's output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class ProgressStyle { kAuto, kPlain, kOff };
inline Names names_of(ProgressStyle) { return {"auto", "plain", "off"}; }

struct LoggingConfig {
  bool jsonl = true;         ///< metrics.jsonl in run_dir.
  bool tensorboard = false;  ///< Event files in run_dir/tensorboard.
  ProgressStyle progress = ProgressStyle::kAuto;
  std::optional<int64_t> histogram_every_steps;  ///< Parameters and gradients, for TensorBoard.
  double peak_tflops = 0.0;                      ///< Per rank's device, 1e12 FLOP/s; 0: no MFU.
};

enum class WandbMode { kOff, kOffline, kOnline };
inline Names names_of(WandbMode) { return {"off", "offline", "online"}; }

/// Where metrics.jsonl is sent, by scripts/track_run.py.
struct MetricsConfig {
  WandbMode wandb = WandbMode::kOff;
  bool mlflow = false;
};

struct ProfileConfig {
  std::optional<int64_t> start;  ///< First step in the trace, from 1; not given: no trace.
  int64_t steps = 3;
};

/// Log level DEBUG for everything, or for the loggers of these names.
struct Verbosity {
  bool all = false;
  std::vector<std::string> loggers;

  bool covers(const std::string& logger) const {
    return all || std::find(loggers.begin(), loggers.end(), logger) != loggers.end();
  }
};

struct HydraConfig {
  std::string run_dir = ".";  ///< The folder of this run. Absolute after loading.
  Verbosity verbose;
  std::string output_subdir = ".hydra";  ///< Below run_dir; empty: nothing is written there.
  std::string job_name = "trainer";
  bool job_chdir = false;  ///< The run works in run_dir.

  /// main.log in run_dir, or named by hydra.job.name.
  std::string log_file() const {
    return run_dir + "/" + (job_name == "trainer" ? "main" : job_name) + ".log";
  }
};

}  // namespace ddp::train
