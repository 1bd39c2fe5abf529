// The training state as handed over for saving.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/parallel/device/device_wait.h"
#include "trainer/snapshot/shard_file.h"
#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/snapshot/state_buffer.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// This rank's part of a save in which every rank writes a file.
struct ShardToSave {
  ShardId id;
  std::string stem;  ///< See SnapshotFolder::stem_for_shards().
  std::vector<StatePiece> pieces;
  std::vector<LogicalTensor> tensors;  ///< The whole state.

  /// The same without the state's own tensors.
  ShardToSave without_values() const;
};

/// The state to save. The tensors stay unchanged until the next SnapshotKeeper::before_update() or,
/// if they are a copy already, for good: a copy is written and then freed.
struct TrainingState {
  SnapshotMeta meta;
  NamedTensors tensors;  ///< With a shard, parts_of() its pieces.
  ReadyEvent ready;
  std::optional<ShardToSave> shard = std::nullopt;
  bool is_copy = false;  ///< On the CPU.
};

}  // namespace ddp::train
