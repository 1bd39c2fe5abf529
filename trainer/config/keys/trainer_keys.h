// trainer's keys, for checks during the composition of a configuration.
#pragma once

#include "trainer/hydra/compose/known_keys.h"

namespace ddp::train {

const KnownKeys& trainer_keys();

}  // namespace ddp::train
