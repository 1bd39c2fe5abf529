// What `trainer plan` prints: a table for people, JSON for programs. No LibTorch in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/app/plan/parallel_plan.h"

namespace ddp::train {

/// The plans of one call.
struct PlanAnswer {
  std::vector<std::string> facts;  ///< Lines above the table: what it was computed for.
  std::vector<ParallelPlan> plans;
  std::optional<ParallelPlan> choice;
  std::vector<std::string> overrides;  ///< That make a training follow the choice.
  std::string way_out;                 ///< Without a choice.
  bool cuda = true;
};

/// Ends with the choice as YAML to paste, or with the way out.
std::string plan_text(const PlanAnswer& answer);
/// {"plans": [...], "choice": {...}}; choice is null where nothing fits.
std::string plan_json(const PlanAnswer& answer);

}  // namespace ddp::train
