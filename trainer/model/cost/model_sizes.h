// Resolves the sizes of the task's model: from a preset, from a pretrained model, or given.
#pragma once

#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// Resolves the sizes from model_type or init_from and checks that they fit. Throws UserError.
void complete_model(Config& config, const Given& given);

}  // namespace ddp::train
