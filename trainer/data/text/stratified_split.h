// Splits samples by class: a share of each class for training, the rest for evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/sample_source.h"

namespace ddp::train {

/// Splits the samples of each label by the share, rounded, with at least one sample in either part
/// where there are two; which ones depends on the seed. A share of 1 or 0 puts all in one part.
/// `labels` are in [0, classes).
SampleSplit split_by_label(const std::vector<int64_t>& labels, int64_t classes,
                           double training_share, uint64_t seed);

}  // namespace ddp::train
