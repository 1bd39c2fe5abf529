// Resolves --nproc_per_node = N | gpu | cpu | auto on this machine.
#pragma once

#include <string>

#include "launcher/plan/gpus.h"

namespace ddp::launch {

/// Throws LaunchError (2) with the fix if `value` is malformed or yields no worker.
int local_world_size(const std::string& value, const MachineView& machine);

}  // namespace ddp::launch
