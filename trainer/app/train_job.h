// A training job, from its configuration to its last snapshot. A run is one, a sweep several.
#pragma once

#include "trainer/config/load/read_run.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/run/training_run.h"

namespace ddp::train {

/// A failed rank must not wait for the others' collectives: a single run ends the process at once,
/// one of several throws.
enum class OnFailure { kEndProcess, kThrow };

/// Rank 0 creates the folder of the run and its log. All ranks join a group, in this job's own part
/// of `store`, and train. Every torch object of the job is destroyed on return. Throws the error
/// that ends the job: UserError before training, anything afterwards.
FitResult train_job(RunConfig run, const DistEnv& env, OnFailure on_failure,
                    const StorePart& store = {});

}  // namespace ddp::train
