// --numa-binding: restricts each worker to CPUs near its GPU. The modes are torchrun's; reads the
// kernel's files, so neither numactl nor CUDA is needed.
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

/// Returns the NUMA node of a GPU, given as in CUDA_VISIBLE_DEVICES (an index in PCI order, or
/// GPU-<uuid>); nullopt if the driver's files do not show it.
std::optional<int> numa_node_of_gpu(const std::string& gpu, const NumaView& view);

/// Returns the CPUs of each worker. `gpus`: one per worker; workers without one are distributed
/// over the nodes in order. Throws LaunchError (2) if a worker would get no CPU, or a MIG instance
/// of an unknown one of several nodes.
std::vector<std::vector<int>> bind_to_numa(NumaBinding how, const std::vector<std::string>& gpus,
                                           int workers, const NumaView& view);

/// Returns how many threads each worker may have so that no CPU gets two, at most `threads`.
int threads_that_fit(const std::vector<std::vector<int>>& bound, int threads);

}  // namespace ddp::launch
