#pragma once

#include <torch/torch.h>

#include "trainer/config/training_config.h"

namespace ddp::train {

/// The device that --device asks for. Throws UserError if this machine has none.
torch::Device chosen_device(DeviceChoice choice);

}  // namespace ddp::train
