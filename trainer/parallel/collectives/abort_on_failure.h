// Ends what a group of ranks has under way when an exception ends this one.
#pragma once

#include <exception>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// A mesh that ends by an exception while its GPUs wait for other ranks. Destructors would abort
/// its communicators one after another, each for as long as that takes; the world's alone is left
/// to the end of the process.
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
