// Which device this rank computes on, and whether the choices of all ranks fit together.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

struct DevicePlan {
  torch::Device device = torch::kCPU;
  bool nccl = false;    ///< Gradients are reduced by NCCL, else by Gloo.
  std::string gpu;      ///< UUID of the GPU; empty on the CPU.
  std::string why_cpu;  ///< Why device=auto takes the CPU of a machine with a GPU; else empty.
  std::string backend_name() const { return nccl ? "nccl" : "gloo"; }
};

/// The device that `config` and the environment ask for. Loads the CUDA module when a GPU is to be
/// used, and selects the GPU of this local rank. Throws UserError when CUDA is asked for and not
/// there, or when there are more local ranks than GPUs.
DevicePlan plan_device(const Config& config, const DistEnv& env);

/// What the other ranks have to know about one rank's plan.
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
/// same kind of device with the same backend and, with NCCL, each on a GPU of its own; nor if
/// more than `ranks_per_device` of them share one.
void check_rank_devices(const std::vector<RankDevice>& ranks,
                        std::optional<int64_t> ranks_per_device = std::nullopt);

}  // namespace ddp::train
