// Polls NCCL's communicators for errors while the ranks compute: a lost machine, a reset
// connection, a collective that some rank never entered.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/parallel/collectives/sign_of_life.h"
#include "trainer/parallel/mesh/mesh.h"

namespace ddp::train {

/// Polls this rank's communicators from a thread of its own: torch's watchdog ends the process only
/// a minute later, and until then blocks every call that begins a collective. `failed` must end the
/// process.
class NcclWatch {
 public:
  /// Called once on that thread, with one line: the error and the fix.
  using Failed = std::function<void(const std::string& why)>;

  /// Inactive, without a thread, if no group of `mesh` uses NCCL. `timeout_s`: of collectives.
  NcclWatch(const Mesh& mesh, double timeout_s, Failed failed);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

 private:
  void look();
  std::string what_happened(c10d::Backend& communicator) const;

  std::vector<c10::intrusive_ptr<c10d::Backend>> communicators_;
  const int rank_;
  const double timeout_s_;
  Failed failed_;
  EndEvent end_;
  std::thread thread_;
};

}  // namespace ddp::train
