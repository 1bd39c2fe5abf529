// The ranks that a training is planned for: what the options of `trainer plan` state, and
// assumptions for the rest. No LibTorch in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

struct Config;

/// The connection between two ranks.
struct Link {
  double latency_s = 0.0;    ///< Per message.
  double bytes_per_s = 0.0;  ///< Sent by a rank while it receives as much.
};

/// Ranks on nodes of equal size.
struct Cluster {
  int64_t ranks = 1;
  int64_t nodes = 1;  ///< Divides `ranks`.
  Link inside;        ///< Between two ranks of a node.
  Link between;       ///< Between ranks of two nodes; each rank of a node has one of its own.
  bool cuda = true;
  int64_t memory_bytes = 0;          ///< Per rank.
  double flops_per_s = 0.0;          ///< Attained by each rank.
  double memory_bytes_per_s = 0.0;   ///< Its memory's, which the optimizer's update waits for.
  std::vector<std::string> facts{};  ///< A line each: ranks, their speed, links; what is assumed.

  int64_t ranks_of_node() const { return ranks / nodes; }
};

/// Seconds to all-gather, or to reduce-scatter, a tensor of `bytes`: a ring within each node while
/// a ring of nodes exchanges the rest, the slower of the two counts. An all-reduce is both.
double all_gather_seconds(const Cluster& cluster, double bytes);

/// Throws UserError: ranks that nodes do not divide.
Cluster plan_cluster(const PlanArgs& args, const Config& config);

}  // namespace ddp::train
