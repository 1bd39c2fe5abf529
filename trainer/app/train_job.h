// One training: from its configuration to its last snapshot. A run is one, a sweep several.
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
  std::optional<double> train_loss;  ///< At the last logged step; none when nothing was trained.
  std::optional<double> eval_loss;   ///< At the last evaluation.
  std::string folder;                ///< Where rank 0 wrote, on every rank.
};

/// A failed rank must not wait for the others' collectives: a run that is alone in its process ends
/// there and then, one of several is thrown out of.
enum class OnFailure { kEndProcess, kThrow };

/// Rank 0 creates the folder of the run and its log. All ranks join a group, in a part of `store`
/// that is this job's own, and train. Every torch object of the job is destroyed when this returns.
/// Throws what ends the job: UserError before training, anything after.
JobResult train_job(RunConfig run, const DistEnv& env, OnFailure on_failure,
                    const StorePart& store = {});

}  // namespace ddp::train
