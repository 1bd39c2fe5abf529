// Virtual devices (tf.distribute: logical devices): several ranks on one device, each held to its
// share of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/parallel/device/device_plan.h"

namespace ddp::train {

/// Holds this process to distributed_config.ranks_per_device and .memory_limit_mb from now on:
/// threads, and memory on top of what it has now. Process-wide; without the keys it takes back what
/// an earlier call has set. Throws UserError when the limit cannot be kept.
void hold_to_share(const DistributedConfig& config, const DevicePlan& plan);

/// The limit on a rank's memory, bytes: of tensors on a GPU, of the process's own memory on a CPU.
/// On a GPU that several ranks share it is an equal share unless given. None: no limit.
std::optional<int64_t> memory_limit_bytes(const DistributedConfig& config, torch::Device device);

/// " with the limit of 2048 MiB by distributed_config.memory_limit_mb=2048"; empty without one.
std::string memory_limit_note(const DistributedConfig& config, torch::Device device);

/// One line: what a rank may use. Empty without the keys.
std::string share_text(const DistributedConfig& config, const DevicePlan& plan);

}  // namespace ddp::train
