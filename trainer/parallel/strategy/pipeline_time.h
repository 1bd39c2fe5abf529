// How long the ranks of a pipeline take for the passes of a step, by playing their schedule. No
// LibTorch in it.
#pragma once

#include <vector>

#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {

/// Of one micro-batch in one stage.
struct StageSeconds {
  double forward = 0.0;
  double backward = 0.0;
};

struct PipelineTime {
  double seconds = 0.0;     ///< From the first pass to the end of the last.
  double idle_share = 0.0;  ///< Of all ranks together.
};

/// `stages`: shape.stages() of them. `message_s`: from the end of a pass to the rank that waits for
/// it. Steps of very many micro-batches are extrapolated from shorter ones.
PipelineTime pipeline_time(PipelineSchedule schedule, const PipelineShape& shape,
                           const std::vector<StageSeconds>& stages, double message_s);

}  // namespace ddp::train
