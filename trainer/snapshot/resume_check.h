// Checks whether a snapshot matches this run's configuration and data, before loading anything.
#pragma once

#include <string>
#include <vector>

#include "trainer/snapshot/snapshot.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct Config;

/// Throws UserError if the model or the task's own state, such as a vocabulary, differs:
/// nothing of the snapshot would fit. Every other change is allowed (that is how
/// hyperparameters are edited between runs); returns one line for each that matters to
/// training.
std::vector<std::string> check_resume(const SnapshotMeta& meta, const Config& config,
                                      const Task& task);

/// Whether the best evaluation in `meta` is comparable with this run's: same metric and data.
bool keeps_best_evaluation(const SnapshotMeta& meta, const Config& config, const Task& task);

/// Whether `meta.cursor` still means the same samples: same samples, windows and seed.
bool same_data_order(const SnapshotMeta& meta, const Config& config, const Task& task);

}  // namespace ddp::train
