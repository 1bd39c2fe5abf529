// What a warm spare does before it is needed.
#pragma once

#include "trainer/app/trainer_args.h"

namespace ddp::train {

/// Reads the configuration and the data, and makes one step of a small model on the CPU, so that
/// libraries, threads and kernels are there and files are in the page cache. Where the run may use
/// a GPU there is no step, and no GPU is touched. Leaves no trace but that; what goes wrong is left
/// for the worker to say.
void warm_up(const TrainerArgs& args) noexcept;

}  // namespace ddp::train
