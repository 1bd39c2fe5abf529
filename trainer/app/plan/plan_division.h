// The ways to divide a training among ranks, and what is against them. No LibTorch in it.
#pragma once

#include <string>
#include <vector>

#include "trainer/app/plan/plan_input.h"

namespace ddp::train {

/// What of distributed_config decides who holds what.
struct Division {
  Strategy strategy = Strategy::kDdp;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  bool sequence_parallel = false;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int64_t chunks = 1;

  bool operator==(const Division&) const = default;
  bool leaves_model_whole() const { return tensor * pipeline == 1; }
};

Division division_of(const DistributedConfig& config);

/// Every division of `ranks`, the simplest first: strategies that leave the model whole, then those
/// of models whose layers are shared, cut into stages, or both.
std::vector<Division> divisions(const PlannedTraining& training, int64_t ranks);

/// `config`, which is for `ranks`, divided like that and with the same global batch.
Config divided(Config config, const Division& division, int64_t ranks);

/// Why the trainer cannot use `config`, which divided() has made, on these ranks, or should not; ""
/// if it can.
std::string why_not(const Config& config, const PlannedTraining& training, const Network& network);

}  // namespace ddp::train
