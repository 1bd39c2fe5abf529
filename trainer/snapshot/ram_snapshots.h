// Snapshots in shared memory: two files in a folder that ddp-run keeps across restarts, written
// alternately, so that one is complete whenever the process dies.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train {

/// The files that a run with this snapshot_path may have left in `folder`.
std::vector<std::string> ram_snapshot_files(const std::string& folder,
                                            const std::string& snapshot_path);

/// Removes them, including those of earlier processes. No RamSnapshots may be using them.
void remove_ram_snapshots(const std::string& folder, const std::string& snapshot_path);

/// Used by one thread at a time.
class RamSnapshots {
 public:
  /// Existing files are touched only by store(), that of `resumed_from` last.
  RamSnapshots(const std::string& folder, const std::string& snapshot_path,
               const std::string& resumed_from);
  ~RamSnapshots();
  RamSnapshots(const RamSnapshots&) = delete;
  RamSnapshots& operator=(const RamSnapshots&) = delete;

  /// Overwrites the older of the two; leaves it empty if the state contains NaN or Inf. Throws
  /// RunError if shared memory is full. In two parts, of which the first only queues a GPU's
  /// copies: copied() is the mark from which on the tensors may change.
  void begin(const SnapshotMeta& meta, const NamedTensors& tensors, const ReadyEvent& ready);
  const ReadyEvent& copied() const { return copied_; }
  /// Waits for the copies. True if they are complete now; false if they hold NaN or Inf, or if the
  /// device was given up: the older of the two is lost then, the other one stays.
  bool finish(const SnapshotMeta& meta);

 private:
  struct Slot;
  Slot& slot_for(const SnapshotMeta& meta, const NamedTensors& tensors);

  std::vector<std::string> files_;
  std::array<std::unique_ptr<Slot>, 2> slots_;
  std::size_t next_ = 0;
  ReadyEvent copied_;
};

}  // namespace ddp::train
