// The jobs of `trainer --multirun`: every combination of the values, in Hydra's order.
#pragma once

#include <string>
#include <vector>

#include "trainer/hydra/compose/config_repository.h"
#include "trainer/hydra/compose/known_keys.h"

namespace ddp::train {

struct SweepPlan {
  std::string folder;                          ///< hydra.sweep.dir, absolute.
  std::vector<std::vector<std::string>> jobs;  ///< The overrides of each, Hydra's own included.
  std::vector<std::string> labels;             ///< "a=1 b=2"
  Node root;                                   ///< What the jobs share, as multirun.yaml holds it.
};

/// Whether hydra.mode, in the file or among the overrides, is MULTIRUN, as if --multirun were
/// given. Throws UserError if it is neither that nor RUN.
bool asks_for_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                    const KnownKeys& keys);

/// Reads the overrides and hydra.sweeper.params. The first key changes slowest. Throws UserError.
SweepPlan plan_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                     const KnownKeys& keys);

/// Creates the sweep's folder with multirun.yaml in it. Throws UserError if that fails.
void write_sweep_file(const SweepPlan& plan);

}  // namespace ddp::train
