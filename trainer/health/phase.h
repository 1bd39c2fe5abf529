// The phases of a rank: reported in heartbeats, and the places where faults can be injected.
#pragma once

#include <array>
#include <string_view>

namespace ddp::train {

enum class Phase {
  kStart,  ///< Everything before the first step.
  kData,   ///< Waiting for the next micro-batch.
  kForward,
  kBackward,   ///< Gradients are all-reduced meanwhile.
  kAllReduce,  ///< Waiting for the result of a collective.
  kOptimizer,
  kEvaluation,
  kSampling,    ///< Rank 0 alone.
  kProfiling,   ///< The profiler starts, or writes its trace.
  kComparing,   ///< The replicas are being compared.
  kHistograms,  ///< Rank 0 alone.
  kStaging,     ///< The state is being copied for a snapshot.
  kWriting,     ///< A snapshot is being written to its temporary file.
  kRename,      ///< It is on disk, still under its temporary name.
  kCommitting,  ///< All shards of a snapshot have their names, its index does not exist yet.
  kPublished,   ///< It has its name.
  kEnd,         ///< After the last step.
};

struct PhaseName {
  std::string_view name;
  Phase phase;
};

inline constexpr std::array<PhaseName, 17> kPhaseNames = {{{"start", Phase::kStart},
                                                           {"data", Phase::kData},
                                                           {"forward", Phase::kForward},
                                                           {"backward", Phase::kBackward},
                                                           {"all_reduce", Phase::kAllReduce},
                                                           {"optimizer", Phase::kOptimizer},
                                                           {"evaluation", Phase::kEvaluation},
                                                           {"sampling", Phase::kSampling},
                                                           {"profiling", Phase::kProfiling},
                                                           {"comparing", Phase::kComparing},
                                                           {"histograms", Phase::kHistograms},
                                                           {"staging", Phase::kStaging},
                                                           {"writing", Phase::kWriting},
                                                           {"rename", Phase::kRename},
                                                           {"committing", Phase::kCommitting},
                                                           {"published", Phase::kPublished},
                                                           {"end", Phase::kEnd}}};

constexpr std::string_view name_of(Phase phase) {
  for (const auto& entry : kPhaseNames) {
    if (entry.phase == phase) return entry.name;
  }
  return "";
}

}  // namespace ddp::train
