// Resolves --nproc_per_node = N | gpu | cpu | auto on this machine.
#pragma once

#include <string>

#include "launcher/plan/gpus.h"

namespace ddp::launch {

/// Returns the number of workers. Throws LaunchError (2) if `value` is malformed or yields none.
int local_world_size(const std::string& value, const MachineView& machine);

}  // namespace ddp::launch
