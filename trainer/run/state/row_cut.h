// Turns ranges of elements, as ranks hold them, into boxes of rows, as they save them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/collectives/row_collectives.h"
#include "trainer/run/state/shard_cut.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// A divided tensor. All but `own` is the same on all ranks.
struct RowCut {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<HeldRange> held;
  std::vector<HeldRange> saved;
  /// What this rank holds: where it begins, and the values, float32; a tensor of `shape` is all of
  /// it in any memory format, others are dense and hold elements by rows.
  std::vector<std::pair<int64_t, torch::Tensor>> own;
};

/// The boxes that `rank` of `ranks` saves. A collective: parts of rows move in one all-gather of
/// tensors on `device`.
std::vector<StatePiece> pieces_by_rows(const std::vector<RowCut>& cuts, RowCollectives& rows,
                                       torch::Device device, int rank, int ranks);

}  // namespace ddp::train
