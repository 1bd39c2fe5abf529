// Where a run ends, and the message for a user who starts it again there.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/trainer_config.h"
#include "trainer/data/distributed_sampler.h"

namespace ddp::train {

/// Whether max_epochs or max_steps is reached after `step` steps, in epoch `epoch` (from 0).
bool run_is_complete(const TrainerConfig& config, int64_t step, int64_t epoch);

/// Returns the number of optimizer steps of the whole run: those made, `step`, whatever their batch
/// was, and those that the rest of the epochs makes from `cursor` on.
int64_t steps_of_run(const TrainerConfig& config, const DistributedSampler& sampler, int64_t step,
                     const DataCursor& cursor);

/// Returns one line for a run that is already complete: why, and which arguments make the command
/// continue or start over.
std::string nothing_to_train_text(const TrainerConfig& config, int64_t step, int64_t epoch);

/// The same for a run that early stopping has ended.
std::string nothing_after_early_stop_text(const TrainerConfig& config, int64_t step);

/// Returns a word of a command that is printed, quoted for a shell if that is needed.
std::string shell_quoted(const std::string& word);
/// The same for an override, whose value may need quotes of its own.
std::string shell_quoted(const std::string& key, const std::string& value);

}  // namespace ddp::train
