// A sweep: one job for each combination of values, in turn, every rank in step with the others.
#pragma once

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// `trainer --multirun ...`: 0 if every job has trained to its end, 1 if one failed, 75 if stopped
/// (later jobs are left out). A job that fails does not end the sweep.
int run_multirun(const TrainerArgs& args);

}  // namespace ddp::train
