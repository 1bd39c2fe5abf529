// Where each weight of a causal model belongs: its place in the stack of blocks, where pipeline
// stages and sharded units are cut, and how tensor-parallel ranks divide it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/layout/tensor_layout.h"

namespace ddp::train {

/// How ranks that share a layer divide a weight. Linear layers are [out, in].
enum class Split {
  kNone,        ///< Each rank holds all of it: norms, positions, biases of row-parallel layers.
  kInEachPart,  ///< So it does, and uses it within its part of a layer: norms of single heads.
  kVocabulary,  ///< Rows are tokens: token embedding and output layer.
  kColumns,     ///< By outputs, the first dimension; its bias likewise.
  kRows,        ///< By inputs, the second dimension; the ranks' products are summed.
};

struct WeightPlace {
  static constexpr int64_t kBeforeBlocks = -1;
  static constexpr int64_t kAfterBlocks = -2;
  static constexpr int64_t kNoExpert = -1;

  std::string name;
  std::vector<int64_t> shape;
  int64_t block = kBeforeBlocks;  ///< Index of its block, or one of the constants.
  Split split = Split::kNone;
  /// The divided dimension consists of so many equal ranges, each divided on its own: 3 for query,
  /// key and value in one matrix.
  int64_t ranges = 1;
  /// Parts of a range that stay whole, such as heads: the number of ranks must divide it.
  int64_t units = 1;
  double share = 1.0;          ///< Share of the tokens that it is multiplied by: an expert's.
  int64_t expert = kNoExpert;  ///< Number of its expert within the block.
};

/// Every distinct weight once, in the order of the model's parameters.
using WeightsLayout = std::vector<WeightPlace>;

/// What rank `rank` of those that share a layer holds of a weight. Units go to the ranks in order,
/// as evenly as they divide; of a weight that is not divided each rank has all, and rank 0's
/// counts.
TensorLayout layout_of(const WeightPlace& place, int64_t rank, int64_t ranks);
/// Experts of each block; 0: none.
int64_t expert_count(const WeightsLayout& layout);
/// Elements of all weights, each once.
int64_t elements_of(const WeightsLayout& layout);
/// The same with each weight counted by its share of the tokens.
int64_t used_by_token(const WeightsLayout& layout);

}  // namespace ddp::train
