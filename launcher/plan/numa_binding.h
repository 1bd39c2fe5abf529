// --numa-binding: which CPUs each worker may run on, by where its GPU sits. The modes are
// torchrun's; no numactl and no CUDA is needed, the kernel's files tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/launch_config.h"

namespace ddp::launch {

struct NumaView {
  std::string root;           // prefix of /proc and /sys; empty: the real ones
  std::vector<int> affinity;  // CPUs that ddp-run may use
};

/// The NUMA node of a GPU, named as in CUDA_VISIBLE_DEVICES (an index in PCI order, or GPU-<uuid>);
/// nullopt when the driver's files do not tell.
std::optional<int> numa_node_of_gpu(const std::string& gpu, const NumaView& view);

/// `gpus`: one for each worker; fewer: the others, and all of them on a machine without GPUs, are
/// dealt over the nodes in order. Throws LaunchError (2) when a worker would get no CPU.
std::vector<std::vector<int>> bind_to_numa(NumaBinding how, const std::vector<std::string>& gpus,
                                           int workers, const NumaView& view);

}  // namespace ddp::launch
