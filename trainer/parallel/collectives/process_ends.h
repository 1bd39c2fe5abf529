// Detects the end of other processes of this machine, however they end. Does not use LibTorch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {

/// Waits on a thread of its own without using CPU time.
class ProcessEnds {
 public:
  /// Receives the index of the process in the list given to watch(); called on the thread.
  using Ended = std::function<void(std::size_t)>;

  /// Returns null if one of them cannot be watched: it has exited, or Linux is older than 5.3.
  static std::unique_ptr<ProcessEnds> watch(const std::vector<pid_t>& processes);
  ~ProcessEnds();
  ProcessEnds(const ProcessEnds&) = delete;
  ProcessEnds& operator=(const ProcessEnds&) = delete;

  /// Call once: from now on `ended` is called for each process that ends or has ended.
  void start(Ended ended);

 private:
  explicit ProcessEnds(Descriptor stop);
  void look();

  Descriptor stop_;
  std::vector<Descriptor> watched_;
  Ended ended_;
  std::thread thread_;
};

}  // namespace ddp::train
