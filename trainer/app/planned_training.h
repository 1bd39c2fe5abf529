#pragma once

#include "trainer/app/parallel_plan.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// What the planner has to know of a training. Refers to `task`. Throws UserError for a model that
/// does not say what memory it needs.
PlannedTraining planned_training(const Config& config, const Task& task);

}  // namespace ddp::train
