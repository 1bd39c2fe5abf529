// The GPUs of `trainer plan`: what its options say of them, and what is assumed of the rest. No
// LibTorch in it.
#pragma once

#include <string>
#include <vector>

#include "trainer/app/arguments/trainer_args.h"
#include "trainer/app/plan/plan_input.h"
#include "trainer/config/config.h"

namespace ddp::train {

struct PlanCluster {
  Cluster cluster;
  std::vector<std::string> facts;  ///< A line each: ranks, their speed, links; what is assumed.
};

/// Reads the file of --doctor, nothing else. Throws UserError: ranks that nodes do not divide, a
/// file that is not doctor's or does not fit the ranks.
PlanCluster plan_cluster(const PlanArgs& args, const Config& config);

}  // namespace ddp::train
