// The GPUs of this machine, from the driver's files and the environment, without touching CUDA.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

/// The sources of facts about this machine; tests supply their own tree and values.
struct MachineView {
  std::string root;  // prefix of /proc, /sys and /dev; empty: the real ones
  std::optional<std::string> cuda_visible_devices;  // nullopt: not set
  int cpus = 1;                                     // by affinity and the cgroup's quota
  std::string hip_visible_devices{};                // empty: not set, or no AMD machine

  static MachineView of_this_process();
};

/// Counts the GPUs of the machine or container.
int installed_gpus(const MachineView& machine);
/// Counts the GPUs that a CUDA program started here would see.
int count_gpus(const MachineView& machine);
/// Returns the entries of CUDA_VISIBLE_DEVICES that CUDA would use (it stops at the first invalid
/// one), or 0, 1, ... if unset.
std::vector<std::string> visible_gpus(const MachineView& machine);
/// Resolves --nproc_per_node = N | gpu | cpu | auto. Throws LaunchError (2) if `value` is malformed
/// or yields no worker.
int local_world_size(const std::string& value, const MachineView& machine);
/// Assigns a GPU to each worker as torchrun does: from HIP_VISIBLE_DEVICES, else from
/// CUDA_VISIBLE_DEVICES, else from this machine's GPUs, or 0, 1, ... if none is visible. Throws
/// LaunchError (2) naming `option` if there are too few.
std::vector<std::string> gpu_of_each_worker(const MachineView& machine, int workers,
                                            const std::string& option);

}  // namespace ddp::launch
