// The schedules of a step's micro-batches in pipeline stages.
#pragma once

#include "trainer/config/value_types.h"

namespace ddp::train {

/// gpipe: all forward passes, then all backward passes (Huang et al., 2019). 1f1b: each stage
/// alternates between them as soon as it can (Narayanan et al., PipeDream-Flush, 2021).
/// interleaved: each rank has several stages (Megatron-LM, 2021). zero_bubble: the gradients of
/// weights are computed while a stage would wait (ZB-H1, Qi et al., 2024).
enum class PipelineSchedule { kGpipe, k1f1b, kInterleaved, kZeroBubble };
inline Names names_of(PipelineSchedule) { return {"gpipe", "1f1b", "interleaved", "zero_bubble"}; }

}  // namespace ddp::train
