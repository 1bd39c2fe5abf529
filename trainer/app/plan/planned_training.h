#pragma once

#include "trainer/app/plan/plan_input.h"
#include "trainer/task/task_cost.h"

namespace ddp::train {

/// The planner's view of a training. Refers to `task`. Throws UserError for a model that does not
/// declare the memory it needs.
PlannedTraining planned_training(const Config& config, const TaskCost& task);

}  // namespace ddp::train
