#pragma once

#include <torch/torch.h>

#include "trainer/config/training_config.h"

namespace ddp::train {

/// The device that --device asks for. Throws UserError if this machine has none.
torch::Device chosen_device(DeviceChoice choice);

/// settle_amp() by this machine's CPU, for a mode that does not train. Prints the warning.
void settle_amp_here(TrainerConfig& config);

}  // namespace ddp::train
