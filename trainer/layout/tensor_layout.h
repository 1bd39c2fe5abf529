// Which elements of a tensor of the training state a rank holds. Names and shapes are those of one
// process, whatever divides the model (tensor and pipeline parallelism) and its state (ZeRO):
// snapshots are the same under every strategy. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/layout/box.h"

namespace ddp::train {

/// [begin, end) along one dimension.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

struct TensorLayout {
  std::vector<int64_t> shape;  ///< The logical tensor's, which one process would hold.
  /// This rank's elements in the order of its own tensor, which holds those of the first box by
  /// rows, then those of the next; what it has beyond them is padding.
  std::vector<Box> boxes;
  /// Whether this rank's copy counts in the gradient norm and in snapshots: where tensor-parallel
  /// ranks or stages hold the same elements, one of them does. Copies of the model all count.
  bool counted = true;
  int64_t place = 0;  ///< Among the parameters of the whole model.
  int64_t first = 0;  ///< The number of the first element in the tensor that slice() was asked of.

  static TensorLayout whole(std::vector<int64_t> shape, bool counted = true, int64_t place = 0);
  /// Ranges of dimension `dim`, one after the other along it; of another than the first, only one.
  static TensorLayout cut(std::vector<int64_t> shape, int64_t dim,
                          const std::vector<IndexRange>& ranges);

  /// The elements [begin, end) of the rank's tensor.
  TensorLayout slice(int64_t begin, int64_t end) const;

  /// The layout of a tensor that has one element for each `block` of this one's, numbered by rows.
  /// No box may end within a block, unless the tensor ends there.
  TensorLayout in_blocks(int64_t block) const;

  /// Without padding.
  int64_t elements() const;
  bool is_whole() const { return boxes == std::vector{Box::whole(shape)}; }
  /// The shape of all boxes, one after the other along the first dimension.
  std::vector<int64_t> local_shape() const;
  bool operator==(const TensorLayout&) const = default;
};

/// By the names of parameters.
using TensorLayouts = std::map<std::string, TensorLayout>;

}  // namespace ddp::train
