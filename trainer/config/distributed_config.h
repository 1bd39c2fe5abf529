// distributed_config: a training among ranks.
#pragma once

#include <cstdint>
#include <optional>

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
  int64_t expert = 1;                ///< Ranks that share the experts of each layer.
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

}  // namespace ddp::train
