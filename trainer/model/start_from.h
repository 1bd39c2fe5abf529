// The key init_from: one name for the pretrained model of any task and architecture.
#pragma once

#include "trainer/config/config.h"
#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// Sets task, model and the init_from of that model's section to those of the folder or snapshot
/// that `config.init_from` names, and clears that; task and model that are given stay. Does nothing
/// without it. Throws UserError: it cannot be read, or does not go with what is given.
void follow_init_from(Config& config, const Given& given);

}  // namespace ddp::train
