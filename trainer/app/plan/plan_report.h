// What `trainer plan` prints: a table for people, JSON for programs. No LibTorch in it.
#pragma once

#include <string>
#include <vector>

#include "trainer/app/plan/parallel_plan.h"

namespace ddp::train {

/// `facts`: lines above the table. Ends with the choice as YAML to paste, or with the way out.
std::string plan_text(const PlanAnswer& answer, const std::vector<std::string>& facts);
/// {"plans": [...], "choice": {...}}; choice is null where nothing fits.
std::string plan_json(const PlanAnswer& answer);

}  // namespace ddp::train
