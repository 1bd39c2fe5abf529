// Aborts a group's pending operations if an exception ends this rank.
#pragma once

#include <exception>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// Guards a mesh against an exception while its GPUs wait for other ranks. Destructors would abort
/// its communicators one after another, each taking its time; only the world's is left to the end
/// of the process.
class AbortOnFailure {
 public:
  explicit AbortOnFailure(ProcessGroup& group) : group_(group) {}
  ~AbortOnFailure() {
    if (std::uncaught_exceptions() > before_) group_.abort();
  }
  AbortOnFailure(const AbortOnFailure&) = delete;
  AbortOnFailure& operator=(const AbortOnFailure&) = delete;

 private:
  ProcessGroup& group_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace ddp::train
