// The passes of a pipeline's ranks in a profiled step, read from their traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

enum class TracedKind : uint8_t { kForward, kBackward };

/// A pass of one micro-batch in one stage.
struct TracedPass {
  TracedKind kind = TracedKind::kForward;
  double begin_us = 0.0;  ///< From the first pass of any rank.
  double end_us = 0.0;
};

struct PipelineTrace {
  int64_t step = 0;
  std::vector<std::vector<TracedPass>>
      ranks;  ///< One copy of the model; each rank's passes in order.
};

/// Returns the last step in the traces of all ranks of a copy, for a run with `config_json`;
/// without ranks if it has no pipeline or no such traces.
PipelineTrace read_pipeline_trace(const std::string& folder, const std::string& config_json);

/// Share of the time between the first and the last pass of any rank in which this rank is idle.
double idle_share(const PipelineTrace& trace, std::size_t rank);

}  // namespace ddp::train
