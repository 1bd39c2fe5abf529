#pragma once

#include "trainer/app/plan/plan_input.h"
#include "trainer/task/task_cost.h"

namespace ddp::train {

/// What the planner has to know of a training. Refers to `task`. Throws UserError for a model that
/// does not say what memory it needs.
PlannedTraining planned_training(const Config& config, const TaskCost& task);

}  // namespace ddp::train
