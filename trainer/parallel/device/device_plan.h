// Chooses the device of this rank, and checks that the choices of all ranks are compatible.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/distributed_config.h"
#include "trainer/config/trainer_config.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

struct DevicePlan {
  torch::Device device = torch::kCPU;
  bool nccl = false;    ///< Gradients are reduced by NCCL, otherwise by Gloo.
  std::string gpu;      ///< UUID of the GPU; empty on the CPU.
  std::string why_cpu;  ///< Why device=auto chose the CPU although there is a GPU; else empty.
  std::string backend_name() const { return nccl ? "nccl" : "gloo"; }
};

/// Returns the device requested by `choice`, `config` and the environment. Loads the CUDA module if
/// a GPU is to be used, and selects this local rank's GPU. Throws UserError if CUDA is requested
/// but not available, or if there are more local ranks than GPUs.
DevicePlan plan_device(DeviceChoice choice, const DistributedConfig& config, const DistEnv& env);

/// The parts of a rank's plan that the other ranks check.
struct RankDevice {
  std::string host;
  std::string backend;
  std::string gpu;
  std::string why_cpu;

  static RankDevice of(const DevicePlan& plan);
  std::string to_json() const;
  static RankDevice from_json(const std::string& json);
};

/// Each rank chooses on its own; NCCL then waits forever for one that chose otherwise. `ranks` in
/// the order of the ranks. Throws UserError, the same one on every rank, unless all compute on the
/// same kind of device with the same backend and, with NCCL, each on its own GPU; also if more than
/// `ranks_per_device` of them share one.
void check_rank_devices(const std::vector<RankDevice>& ranks,
                        std::optional<int64_t> ranks_per_device = std::nullopt);

}  // namespace ddp::train
