// Assigns the layers of a causal model to the stages of a pipeline. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

/// The blocks [begin, end) of a model. With the first block go the embeddings, with the last one
/// the final norm and the output layer.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const LayerRange&) const = default;
};

/// One rank's part of a model of `layers` blocks.
struct ModelPart {
  int64_t layers = 0;
  std::vector<LayerRange> stages;  ///< In their order.

  bool has_first() const { return stages.front().begin == 0; }
  bool has_last() const { return stages.back().end == layers; }
  bool has(int64_t layer) const;
};

/// Cost of the parts of a model for one token, in any unit.
struct StageCosts {
  double layer = 1.0;
  double head = 0.0;
  int64_t layers = 1;
};

/// Multiplications of the forward pass; backward passes cost twice as much in every part.
/// `block_size`: tokens of a sequence, which attention grows with.
StageCosts stage_costs(const WeightsLayout& layout, int64_t block_size);

/// Cuts a model between its layers, so that the most expensive stage is as cheap as it can be. Each
/// stage has one layer at least: `stages` is at most costs.layers.
std::vector<LayerRange> cut_into_stages(const StageCosts& costs, int stages);

/// The stages rank, rank + ranks, ... of all of them.
ModelPart part_of_rank(const std::vector<LayerRange>& stages, int rank, int ranks);

}  // namespace ddp::train
