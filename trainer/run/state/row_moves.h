// Turns ranges of elements, as ranks of ZeRO hold them, into boxes of rows, as they save them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/layout/saved_rows.h"
#include "trainer/parallel/collectives/row_collectives.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// A tensor that ranks of ZeRO divide. All but `own` is the same on all of them.
struct DividedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<ElementRange> held;
  std::vector<ElementRange> saved;
  /// What this rank holds: where it begins, and the values by rows.
  std::vector<std::pair<int64_t, torch::Tensor>> own;
  torch::ScalarType type = torch::kFloat32;  ///< Or uint8.
};

/// The boxes that `rank` of `ranks` saves. A collective: parts of rows move in one all-gather of
/// tensors on `device`.
std::vector<StatePiece> pieces_by_rows(const std::vector<DividedTensor>& cuts, RowCollectives& rows,
                                       torch::Device device, int rank, int ranks);

}  // namespace ddp::train
