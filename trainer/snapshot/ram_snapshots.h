// Snapshots in shared memory: two files in a folder that ddp-run keeps across restarts, written
// alternately, so that one is complete whenever the process dies. If every rank saves a shard, each
// has its own two files; a snapshot is the newest step that all of them have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/snapshot/state_buffer.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// This rank's place among the ranks that save shards.
struct ShardRank {
  int rank = 0;
  int ranks = 1;
};

/// Returns the two files of a run with this snapshot_path in `folder`, or of one of its ranks.
std::vector<std::string> ram_snapshot_files(const std::string& folder,
                                            const std::string& snapshot_path,
                                            const std::optional<ShardRank>& shard = std::nullopt);

/// Returns what a run with this snapshot_path may have left in `folder`: single files, complete or
/// not, and shards of saves that all their ranks have finished.
std::vector<std::vector<std::string>> ram_snapshot_copies(const std::string& folder,
                                                          const std::string& snapshot_path);

/// Removes them, including those of earlier processes and of other ranks.
void remove_ram_snapshots(const std::string& folder, const std::string& snapshot_path);

/// Used by one thread at a time.
class RamSnapshots {
 public:
  /// Only reserve() and begin() touch existing files, that of `resumed_from` last, or the shard of
  /// `resumed_step`.
  RamSnapshots(const std::string& folder, const std::string& snapshot_path,
               const std::string& resumed_from);
  RamSnapshots(const std::string& folder, const std::string& snapshot_path, const ShardRank& shard,
               int64_t resumed_step);
  ~RamSnapshots();
  RamSnapshots(const RamSnapshots&) = delete;
  RamSnapshots& operator=(const RamSnapshots&) = delete;

  /// Reserves and page-locks the memory of the next copy, which begin() would do otherwise: the
  /// slow part of the first two copies.
  void reserve(const Metadata& metadata, const NamedTensors& tensors);
  /// Starts to overwrite the older of the two; leaves it empty if the state contains NaN or Inf.
  /// Throws RunError if shared memory is full. begin() only queues a GPU's copies, finish()
  /// completes them: copied() is the mark after which the tensors may change.
  void begin(const Metadata& metadata, const NamedTensors& tensors, const ReadyEvent& ready);
  const ReadyEvent& copied() const { return copied_; }
  /// Waits for the copies. Returns true if they are complete; false if they hold NaN or Inf, or if
  /// the device was given up: then the older of the two is lost, the other one stays. `pieces`: the
  /// pieces that the tensors are parts of; empty if each is one of the state's.
  bool finish(const Metadata& metadata, const std::vector<StatePiece>& pieces = {});

 private:
  struct Slot;
  Slot& slot_for(const Metadata& metadata, const NamedTensors& tensors);

  std::vector<std::string> files_;
  std::array<std::unique_ptr<Slot>, 2> slots_;
  std::size_t next_ = 0;
  ReadyEvent copied_;
};

}  // namespace ddp::train
