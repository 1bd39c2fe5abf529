// Whether a snapshot fits the configuration and the data of this run, decided before anything is
// loaded.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/char_dataset.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {

/// Throws UserError when the model or the vocabulary differs: nothing of the snapshot would fit.
/// Every other change is allowed (that is how hyperparameters are edited between runs); returns one
/// line for each that matters to training.
std::vector<std::string> check_resume(const SnapshotMeta& meta, const Config& config,
                                      const CharDataset& dataset);

/// Whether `meta.cursor` still means the same samples: same text, windows and seed.
bool same_data_order(const SnapshotMeta& meta, const Config& config, const CharDataset& dataset);

}  // namespace ddp::train
