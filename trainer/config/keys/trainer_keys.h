// trainer's keys, as the composition of a configuration checks them.
#pragma once

#include "trainer/hydra/compose/known_keys.h"

namespace ddp::train {

const KnownKeys& trainer_keys();

}  // namespace ddp::train
