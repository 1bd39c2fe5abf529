// trainer_config: how a network is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class AmpDtype { kFloat16, kBFloat16 };
inline Names names_of(AmpDtype) { return {"float16", "bfloat16", "fp16=float16", "bf16=bfloat16"}; }

enum class DeviceChoice { kAuto, kCpu, kCuda };
inline Names names_of(DeviceChoice) { return {"auto", "cpu", "cuda", "gpu=cuda"}; }

enum class IfBusy { kSkip, kWait };
inline Names names_of(IfBusy) { return {"skip", "wait"}; }

/// A YAML value that may also be a bool; its names are the bool's spellings.
enum class AutoSwitch { kAuto, kTrue, kFalse };
inline Names names_of(AutoSwitch) { return {"auto", "true", "false"}; }

enum class BadStepPolicy { kSkip, kRollback, kStop };
inline Names names_of(BadStepPolicy) { return {"skip", "rollback", "stop"}; }

struct TrainerConfig {
  int64_t max_epochs = 10;
  std::optional<int64_t> max_steps;     ///< Stop after this many optimizer steps, even mid-epoch.
  int64_t batch_size = 216;             ///< Sequences per rank and micro-batch.
  int64_t grad_accumulation_steps = 1;  ///< Micro-batches per optimizer step and rank.
  std::optional<int64_t> global_batch_size;  ///< Sequences per optimizer step, all ranks together.
  int64_t data_loader_workers =
      4;                        ///< Data loader threads per rank; 0: load in the training thread.
  double grad_norm_clip = 1.0;  ///< Global L2 norm; 0 switches clipping off.
  std::string snapshot_path = "snapshot.pt";  ///< In hydra.run.dir; absolute after loading.
  int64_t save_every = 3;  ///< Epochs between snapshots; a final one is always written.
  std::optional<int64_t> save_every_steps;
  AutoNumber snapshot_every;                ///< Optimizer steps between two more snapshots.
  double snapshot_overhead = 0.01;          ///< Share of the run's time that `auto` may cost.
  double snapshot_min_interval_s = 60.0;    ///< Minimum time between two of `auto`, seconds.
  double snapshot_disk_share = 0.1;         ///< Share of the time that `auto` may be writing.
  double snapshot_gb_per_hour = 40.0;       ///< Write limit of `auto`; 0: no limit.
  IfBusy snapshot_if_busy = IfBusy::kSkip;  ///< A snapshot is due while the last is written.
  AutoSwitch snapshot_shards = AutoSwitch::kAuto;  ///< Each rank writes its part of a snapshot.
  int64_t save_total_limit = 2;  ///< Files kept: the newest and the ones before it.
  std::string snapshot_cache = "snapshot_cache";  ///< Absolute after loading.
  bool ram_snapshots = false;                     ///< A copy in shared memory after each step.
  int64_t log_every_steps = 10;
  std::optional<int64_t> eval_every_steps;  ///< Besides the evaluation after each epoch.
  std::optional<int64_t> eval_iters;        ///< Batches per evaluation, spread over the whole part.
  std::optional<int64_t> early_stopping_patience;  ///< Evaluations without progress.
  double early_stopping_min_delta = 0.0;
  std::string metric_for_best_model = "loss";
  bool load_best_model_at_end = false;
  int64_t sample_every_steps = 0;  ///< 0: no samples.
  std::string sample_prompt;       ///< Empty: the beginning of the evaluation text.
  int64_t sample_tokens = 100;
  std::vector<std::string> freeze;  ///< Shell patterns of parameter names.
  double label_smoothing = 0.0;     ///< Share of a target that all classes get alike.
  double ema_decay = 0.0;           ///< Decay of the averaged weights; 0: no average.
  int64_t seed = 1337;
  bool use_amp = false;
  AmpDtype amp_dtype = AmpDtype::kFloat16;
  AutoSwitch amp_on_cpu = AutoSwitch::kAuto;   ///< See settle_amp().
  bool fused_gpu_kernels = true;               ///< false: torch's operations.
  AutoSwitch cuda_graphs = AutoSwitch::kAuto;  ///< One launch for a micro-batch; see docs/gpus.md.
  bool tf32 = false;                           ///< In float32 matrix products of a GPU.
  bool deterministic = false;                  ///< Bitwise reproducible on a GPU, too.
  DeviceChoice device = DeviceChoice::kAuto;
  BadStepPolicy bad_step_policy = BadStepPolicy::kSkip;
  double spike_factor = 0.0;  ///< Times the median that makes a spike of loss or norm; 0: off.
  int64_t check_replicas_every_steps = 0;  ///< 0: never.
  std::vector<std::string> fault_plan;     ///< Faults to inject; see parse_fault().
};

/// max_epochs of a run that only max_steps ends.
inline constexpr int64_t kUnlimitedEpochs = 1'000'000'000;

}  // namespace ddp::train
