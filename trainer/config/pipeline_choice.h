// The schedules of a step's micro-batches in pipeline stages.
#pragma once

#include "trainer/config/value_types.h"

namespace ddp::train {

/// gpipe: all forward passes, then all backward passes (Huang et al., 2019). 1f1b: each stage
/// alternates between them as soon as it can (Narayanan et al., PipeDream-Flush, 2021).
/// interleaved: each rank has several stages (Megatron-LM, 2021).
enum class PipelineSchedule { kGpipe, k1f1b, kInterleaved };
inline Names names_of(PipelineSchedule) { return {"gpipe", "1f1b", "interleaved"}; }

}  // namespace ddp::train
