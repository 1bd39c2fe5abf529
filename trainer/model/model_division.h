// Whether a model can be divided between ranks, and what a rank of it computes and keeps. No
// LibTorch in it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/config/distributed_config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/cost/training_cost.h"
#include "trainer/model/load/weights_layout.h"
#include "trainer/model/model_part.h"

namespace ddp::train {

struct Config;

/// Throws UserError with the reason why the model cannot be divided as distributed_config.tensor
/// and pipeline ask. The trainer and its planner both ask here.
void check_division(const Config& config, const CausalArchitecture& architecture,
                    int64_t vocab_size);

/// Ranks that hold one copy of the model together.
inline int64_t ranks_of_copy(const DistributedConfig& config) {
  return config.tensor * config.pipeline;
}
inline int64_t copies_of_model(const DistributedConfig& config, int64_t world_size) {
  return std::max<int64_t>(1, world_size / ranks_of_copy(config));
}

/// The stages of the model that a rank of the pipeline has. Stages that there are no layers for are
/// left out.
ModelPart part_of_stage(const Config& config, const WeightsLayout& layout, int64_t stage);

/// What a rank of a pipeline keeps; of one without stages the whole model and one micro-batch.
struct StageLoad {
  double layers = 0.0;       ///< That it computes.
  double kept_layers = 0.0;  ///< The same, each counted for every micro-batch in flight.
  double in_flight = 1.0;    ///< Micro-batches in flight in its first stage.
  double finished = 1.0;     ///< Micro-batches whose loss it keeps at once.
  bool first = true;         ///< It has the embeddings,
  bool last = true;          ///< it has the output layer.
  bool pipelined = false;
};
StageLoad stage_load(const Config& config, const WeightsLayout& layout, const ComputePlace& place);

/// The most micro-batches, counted in each of the rank's stages, that wait for their backward pass:
/// in_flight() of the schedule's order, as a formula.
int64_t micro_batches_in_flight(const DistributedConfig& config, int64_t rank,
                                int64_t micro_batches);

/// Whether the first and the last stage both hold the table of a tied head.
bool shares_table(const WeightsLayout& layout);

}  // namespace ddp::train
