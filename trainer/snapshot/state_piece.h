// The part of the training state that one rank saves. Names, shapes and positions refer to whole
// tensors: strategy, padding and buckets never appear, so any number of ranks can read them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/layout/box.h"
#include "trainer/optim/optimizer.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train {

/// A tensor of the training state as one process would hold it.
struct LogicalTensor {
  std::string name;
  std::string dtype;  ///< As in TensorBytes.
  std::vector<int64_t> shape;
  bool operator==(const LogicalTensor&) const = default;
};

/// A box that this rank saves.
struct StatePiece {
  std::string name;            ///< The logical tensor's.
  std::vector<int64_t> shape;  ///< The logical tensor's.
  Box box;
  /// The box's elements in row-major order: the first tensor's, then the next one's. On any device,
  /// all of one dtype. Several if part of a row came from another rank.
  std::vector<torch::Tensor> parts;
  int number = 0;  ///< Among this rank's boxes of the tensor.

  /// The tensor's name in the rank's file: names are unique there.
  std::string key() const;
};
/// The name of the logical tensor that a file has under `key`.
std::string name_of_key(const std::string& key);

/// Divides tensors that every rank holds whole: all elements in the given order are divided into
/// `ranks` equal spans of bytes, and a row goes to the rank in whose span it begins. Returns the
/// pieces of `rank`.
std::vector<StatePiece> own_share(const std::vector<NamedTensor>& tensors, int rank, int ranks);

/// Returns the parts of all pieces in sequence, as StateBuffer copies them.
NamedTensors parts_of(const std::vector<StatePiece>& pieces);
/// The pieces' bytes, given those of parts_of(), which are adjacent.
std::vector<TensorBytes> bytes_of_pieces(const std::vector<StatePiece>& pieces,
                                         const std::vector<TensorBytes>& parts);

/// Boxes by the name of their tensor.
using BoxesByName = std::map<std::string, std::vector<Box>>;

/// Checks that the boxes cover every element of every tensor exactly once. Returns an error with
/// the name of the tensor, or "".
std::string cover_error(const std::vector<LogicalTensor>& tensors, const BoxesByName& boxes);

}  // namespace ddp::train
