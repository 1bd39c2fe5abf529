// The planner's input: a training and the ranks it is planned for. No LibTorch in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/cost/communication_cost.h"
#include "trainer/model/cost/memory_model.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

/// What is to be trained. The functions take configurations that differ from `config` in
/// distributed_config, micro-batches and `savers`.
struct PlannedTraining {
  Config config;
  MemoryModel memory;
  std::function<double(const Config&)> flops_per_sample;  ///< With what is computed again.
  std::vector<MemorySaver> savers;
  int64_t largest_layer = 0;  ///< Parameters; 0: not known.
  int64_t matrices = 0;       ///< Weight matrices, which ddp's buckets hold whole; 0: not known.
  int64_t units = 0;          ///< Blocks, which zero3 collects one by one; 0: not known.
  int64_t root = 0;           ///< Parameters outside of them.
  WeightsLayout layout;       ///< How ranks divide the model; empty: they cannot.
  bool recomputes = false;    ///< Forward passes are computed twice.
  /// Why the trainer refuses a configuration; "" if it does not. Empty: it refuses none.
  std::function<std::string(const Config&)> refusal;
};

/// Ranks that are all alike.
struct Cluster {
  Network network;
  bool cuda = true;
  int64_t memory_bytes = 0;  ///< Per rank.
  double flops_per_s = 0.0;  ///< That each rank attains.
  double memory_bytes_per_s =
      0.0;  ///< That its memory delivers: the optimizer's update waits for it.
};

}  // namespace ddp::train
