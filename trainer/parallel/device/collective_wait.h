// Lets other threads see whether this process is currently waiting for other ranks.
#pragma once

#include <cstdint>

namespace ddp::train {

/// While it exists, the training thread is waiting in a collective, or in work that includes one.
/// May be nested; a nested one does not begin a new wait.
class CollectiveWait {
 public:
  CollectiveWait();
  ~CollectiveWait();
  CollectiveWait(const CollectiveWait&) = delete;
  CollectiveWait& operator=(const CollectiveWait&) = delete;

  /// Returns the number of the wait in progress, 0 if there is none. An unchanged number means the
  /// same wait, without progress.
  static uint64_t current();
};

}  // namespace ddp::train
