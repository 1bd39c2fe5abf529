#pragma once

#include <torch/torch.h>

#include <string>

#include "trainer/config/training_config.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// The device that --device asks for. Throws UserError if this machine has none.
torch::Device chosen_device(DeviceChoice choice);

/// settle_amp() by this machine's CPU, for a mode that does not train. Prints the warning.
void settle_amp_here(TrainerConfig& config);
/// settle_amp() by the CPUs of all ranks, alike on all of them; a collective where use_amp is set.
/// Returns the warning on rank 0, else "".
std::string settle_amp_among(ProcessGroup& group, TrainerConfig& config,
                             const TrainerConfig* before = nullptr);

}  // namespace ddp::train
