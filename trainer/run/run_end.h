// Where a run ends, and the message for a user who starts it again there.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/trainer_config.h"

namespace ddp::train {

/// Whether max_epochs or max_steps is reached after `step` steps, in epoch `epoch` (from 0).
bool run_is_complete(const TrainerConfig& config, int64_t step, int64_t epoch);

/// Returns the number of optimizer steps of the whole run.
int64_t steps_of_run(const TrainerConfig& config, int64_t steps_per_epoch);

/// Returns one line for a run that is already complete: why, and which arguments make the command
/// continue or start over.
std::string nothing_to_train_text(const TrainerConfig& config, int64_t step, int64_t epoch);

/// The same for a run that early stopping has ended.
std::string nothing_after_early_stop_text(const TrainerConfig& config, int64_t step);

}  // namespace ddp::train
