// Whether this process waits for other ranks right now: a mark that another thread reads.
#pragma once

#include <cstdint>

namespace ddp::train {

/// From construction to destruction the training thread waits in a collective, or in work of which
/// one is a part. May be nested; one within another does not begin a new wait.
class CollectiveWait {
 public:
  CollectiveWait();
  ~CollectiveWait();
  CollectiveWait(const CollectiveWait&) = delete;
  CollectiveWait& operator=(const CollectiveWait&) = delete;

  /// Number of the wait in progress, 0 if there is none. The same number: the same wait, without
  /// progress.
  static uint64_t current();
};

}  // namespace ddp::train
