// Sums partial gradients of ranks that share layers if each rank keeps only shards of the
// gradients.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/strategy/sharded_data_parallel.h"

namespace ddp::train {

/// Sums Task::partial_gradients() over the ranks that share layers: bitwise identical to
/// Task::complete_gradients() on whole gradients. The shards of such ranks need not match, as their
/// parts of a vocabulary may differ in size, so each copy of the model assembles its gradients
/// before they are summed.
class PartialGradients {
 public:
  /// `partial`: names among the parameters of `shards`. Both must outlive this object.
  PartialGradients(const std::vector<std::string>& partial, ShardedDataParallel& shards,
                   Mesh& mesh);

  /// Call after the backward passes of a step. A collective of the stage's ranks; no host sync.
  void sum();

 private:
  /// Calls `visit(own gradient, its place in a tensor of all of them)`.
  template <class Visit>
  void for_each_own(const torch::Tensor& all, const Visit& visit) const;

  ShardedDataParallel& shards_;
  Mesh& mesh_;
  std::map<std::size_t, int64_t> begin_;  // by parameter: its first element among all of them
  int64_t elements_ = 0;
};

}  // namespace ddp::train
