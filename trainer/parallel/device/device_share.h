// Virtual devices (tf.distribute: logical devices): several ranks on one device, each limited to
// its share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/distributed_config.h"
#include "trainer/parallel/device/device_plan.h"

namespace ddp::train {

/// Limits this process by distributed_config.ranks_per_device and .memory_limit_mb from now on:
/// threads, and memory on top of its current use. Process-wide; without the keys it reverts an
/// earlier call. Throws UserError if the limit cannot be kept.
void hold_to_share(const DistributedConfig& config, const DevicePlan& plan);

/// Returns the limit on a rank's memory, bytes: of tensors on a GPU, of the process's own memory on
/// a CPU. If several ranks share a GPU, the default is an equal share. nullopt: no limit.
std::optional<int64_t> memory_limit_bytes(const DistributedConfig& config, torch::Device device);

/// " with the limit of 2048 MiB by distributed_config.memory_limit_mb=2048"; empty without one.
std::string memory_limit_note(const DistributedConfig& config, torch::Device device);

/// Returns one line on what a rank may use; empty without the keys.
std::string share_text(const DistributedConfig& config, const DevicePlan& plan);

}  // namespace ddp::train
