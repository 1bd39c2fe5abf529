// --numa-binding: which CPUs each worker may run on, by where its GPU sits. The modes are
// torchrun's; no numactl and no CUDA is needed, the kernel's files tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

enum class NumaBinding {
  Node,         // all CPUs of the GPU's NUMA node
  Socket,       // all CPUs of the socket that the node is in
  Exclusive,    // the node's cores are shared out among its workers
  CoreComplex,  // cores that share the largest cache, one such group for each worker of the node
};

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

/// "0-3,8" as the kernel writes it; bad parts are left out.
std::vector<int> parse_cpu_list(const std::string& text);
/// CPUs of the calling thread.
std::vector<int> cpus_of_this_thread();

}  // namespace ddp::launch
