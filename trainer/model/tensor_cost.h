// What a training keeps on ranks that share the layers of a model. No LibTorch in it.
#pragma once

#include <vector>

#include "trainer/model/training_cost.h"
#include "trainer/model/weights_layout.h"

namespace ddp::train {

/// As state_items(), of rank 0, which also gathers snapshots; `layout`: how the ranks divide the
/// parameters.
std::vector<MemoryItem> state_items(const Config& config,
                                    const std::vector<ParameterShape>& parameters,
                                    const ComputePlace& place, const WeightsLayout& layout);

}  // namespace ddp::train
