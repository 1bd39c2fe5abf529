// What each rank of a pipeline does in one optimizer step, and in which order: a pure function of
// the schedule's name and three numbers, the same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/pipeline_choice.h"

namespace ddp::train {

struct PipelineShape {
  int ranks = 1;
  int chunks = 1;  ///< Stages of each rank; more than one for interleaved alone.
  int64_t micro_batches = 1;

  int stages() const { return ranks * chunks; }
  int rank_of(int stage) const { return stage % ranks; }
  bool is_last(int stage) const { return stage + 1 == stages(); }
};

/// One action of one rank on one micro-batch in one stage. Stage s belongs to rank s % ranks.
struct PipelineAction {
  enum class Kind : uint8_t {
    kForward,
    kBackward,
    kReceiveInput,     ///< The output of stage - 1.
    kSendOutput,       ///< To stage + 1.
    kReceiveGradient,  ///< For this stage's output, from stage + 1.
    kSendGradient,     ///< For this stage's input, to stage - 1.
  };
  Kind kind;
  int stage;
  int64_t micro_batch;

  bool operator==(const PipelineAction&) const = default;
};

/// The actions of a rank in their order.
using PipelineOrder = std::vector<PipelineAction>;

/// The order of each rank. In each stage the micro-batches pass forward and backward in ascending
/// order, so that gradients add up as in one process.
///
/// All computations and messages of all ranks have one order that keeps to every dependency, of
/// which each rank has its part: even if each send waits until its receive has begun, and all
/// messages between two ranks go through one queue, no rank waits forever. A receive may come long
/// before its message is used.
///
/// interleaved needs 2 or more chunks and as many micro-batches as the ranks divide; the others one
/// chunk.
std::vector<PipelineOrder> pipeline_orders(PipelineSchedule schedule, const PipelineShape& shape);

/// Whether a pipeline of that shape can follow `schedule`: interleaved takes groups of as many
/// micro-batches as there are ranks.
bool suits(PipelineSchedule schedule, const PipelineShape& shape);

/// The computations of a rank alone, in their order.
PipelineOrder pipeline_computations(PipelineSchedule schedule, const PipelineShape& shape,
                                    int rank);

/// Share of a step for which a rank waits if all stages are equal and messages take no time.
double pipeline_idle_share(const PipelineShape& shape);

/// The most micro-batches, counted in each of the rank's stages, that have passed forward and not
/// yet backward.
int64_t in_flight(const PipelineOrder& order);

}  // namespace ddp::train
