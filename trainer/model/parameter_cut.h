// Which part of a model's parameters a rank holds when a copy of the model is divided between
// ranks. Names and shapes are those of the whole model, so snapshots are free of the division.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddp::train {

/// [begin, end) along one dimension.
struct CutRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const CutRange&) const = default;
};

/// What a rank's tensor is of the whole one: `ranges` of dimension `dim`, one after the other. What
/// it has beyond them is padding.
struct ParameterCut {
  std::vector<int64_t> shape;  ///< Shape of the whole tensor.
  int64_t dim = 0;
  std::vector<CutRange> ranges;
  /// Whether this rank's copy counts in the gradient norm and in snapshots: one copy per element.
  bool counted = true;
  int64_t place = 0;  ///< Among the parameters of the whole model.

  /// All of a tensor.
  static ParameterCut whole(std::vector<int64_t> shape, bool counted = true, int64_t place = 0) {
    const CutRange all{0, shape.empty() ? 1 : shape.front()};
    return {std::move(shape), 0, {all}, counted, place};
  }
};

/// The cuts of all parameters that a rank holds, by name.
using ParameterCuts = std::map<std::string, ParameterCut>;

}  // namespace ddp::train
