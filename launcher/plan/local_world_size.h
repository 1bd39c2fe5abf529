// --nproc_per_node = N | gpu | cpu | auto, as this machine resolves it.
#pragma once

#include <string>

#include "launcher/plan/gpus.h"

namespace ddp::launch {

/// Throws LaunchError (2) with the remedy when `value` is not understood or gives no worker.
int local_world_size(const std::string& value, const MachineView& machine);

}  // namespace ddp::launch
