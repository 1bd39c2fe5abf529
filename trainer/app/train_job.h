// A training job, from its configuration to its last snapshot. A run is one, a sweep several.
#pragma once

#include <optional>
#include <string>

#include "trainer/config/load/read_run.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

/// How a job ended.
struct JobResult {
  int stop_signal = 0;
  std::optional<double> train_loss;  ///< At the last logged step; nullopt if nothing was trained.
  std::optional<double> eval_loss;   ///< At the last evaluation.
  std::string folder;                ///< The folder that rank 0 wrote to, on every rank.
};

/// A failed rank must not wait for the others' collectives: a single run ends the process at once,
/// one of several throws.
enum class OnFailure { kEndProcess, kThrow };

/// Rank 0 creates the folder of the run and its log. All ranks join a group, in this job's own part
/// of `store`, and train. Every torch object of the job is destroyed on return. Throws the error
/// that ends the job: UserError before training, anything afterwards.
JobResult train_job(RunConfig run, const DistEnv& env, OnFailure on_failure,
                    const StorePart& store = {});

}  // namespace ddp::train
