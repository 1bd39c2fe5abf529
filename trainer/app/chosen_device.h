#pragma once

#include <torch/torch.h>

#include <string>

#include "trainer/config/trainer_config.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// Returns the device requested by --device. Throws UserError if this machine has none.
torch::Device chosen_device(DeviceChoice choice);

/// Calls settle_amp() for this machine's CPU, in a mode that does not train. Prints the warning.
void settle_amp_here(TrainerConfig& config);
/// Calls settle_amp() for the CPUs of all ranks, with the same result on all; a collective if
/// use_amp is set. Returns the warning on rank 0, else "".
std::string settle_amp_among(ProcessGroup& group, TrainerConfig& config,
                             const TrainerConfig* before = nullptr);

}  // namespace ddp::train
