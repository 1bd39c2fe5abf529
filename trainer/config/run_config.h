// distributed_config, logging_config, profile and hydra: a run's distribution and its output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/pipeline_choice.h"
#include "trainer/config/value_types.h"

namespace ddp::train {

enum class Backend { kAuto, kGloo, kNccl };
inline Names names_of(Backend) { return {"auto", "gloo", "nccl"}; }

enum class GradientCompression { kNone, kBf16, kFp16 };
inline Names names_of(GradientCompression) { return {"none", "bf16", "fp16"}; }

/// The distribution of the training state: ddp: all of it on every rank; zero1: each rank holds its
/// share of the optimizer's state; zero2: also of the gradients; zero3: also of the weights. auto:
/// the choice of `trainer plan`, resolved before training.
enum class Strategy { kDdp, kZero1, kZero2, kZero3, kAuto };
inline Names names_of(Strategy) { return {"ddp", "zero1", "zero2", "zero3", "auto"}; }
/// Whether ranks hold different parts of the training state. Undetermined for auto.
inline bool divides_state(Strategy strategy) {
  return strategy != Strategy::kDdp && strategy != Strategy::kAuto;
}

/// The state kept in host memory instead of on the GPU. optimizer: its state, averaged weights and
/// a copy of the weights; the CPU computes the update.
enum class Offload { kNone, kOptimizer };
inline Names names_of(Offload) { return {"none", "optimizer"}; }

struct DistributedConfig {
  Strategy strategy = Strategy::kDdp;
  Offload offload = Offload::kNone;
  int64_t pipeline = 1;  ///< Stages that a copy of the model is cut into.
  PipelineSchedule pipeline_schedule = PipelineSchedule::k1f1b;
  int64_t pipeline_chunks = 1;       ///< Stages of each rank.
  int64_t tensor = 1;                ///< Ranks that share each layer.
  bool sequence_parallel = false;    ///< They divide the rows between shared layers, too.
  Backend backend = Backend::kAuto;  ///< auto: nccl on GPUs, gloo on CPUs.
  double bucket_cap_mb = 25.0;       ///< MiB of gradients that are all-reduced together.
  bool gradient_as_bucket_view = true;
  bool static_graph = false;
  GradientCompression gradient_compression = GradientCompression::kNone;  ///< In transit.
  std::optional<int64_t> ranks_per_device;  ///< Maximum ranks per device (Gloo only).
  std::optional<int64_t> memory_limit_mb;   ///< Memory limit per rank, MiB.
  double timeout_s = 1800.0;  ///< Timeout of collectives and of joining the group, seconds.
  AutoNumber hang_timeout_s;  ///< Silence after which ddp-run considers a rank hung, seconds.
};

enum class ProgressStyle { kAuto, kPlain, kOff };
inline Names names_of(ProgressStyle) { return {"auto", "plain", "off"}; }

struct LoggingConfig {
  bool jsonl = true;         ///< metrics.jsonl in run_dir.
  bool tensorboard = false;  ///< Event files in run_dir/tensorboard.
  ProgressStyle progress = ProgressStyle::kAuto;
  std::optional<int64_t> histogram_every_steps;  ///< Parameters and gradients, for TensorBoard.
  double peak_tflops = 0.0;                      ///< Per rank's device, 1e12 FLOP/s; 0: no MFU.
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
