// Estimates the cost of collectives arithmetically: bytes and seconds. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::train {

/// The connection between two ranks.
struct Link {
  double latency_s = 0.0;    ///< Per message.
  double bytes_per_s = 0.0;  ///< Sent by a rank while it receives as much.
};

/// Ranks on nodes of equal size.
struct Network {
  int64_t ranks = 1;
  int64_t nodes = 1;  ///< Divides `ranks`.
  Link inside;        ///< Between two ranks of a node.
  Link between;       ///< Between ranks of two nodes; each rank of a node has one of its own.

  int64_t ranks_of_node() const { return ranks / nodes; }
};

/// Bytes sent by each rank to all-gather, or to reduce-scatter, a tensor of `bytes`. An
/// all-reduce is both.
double all_gather_bytes(int64_t ranks, double bytes);

/// Seconds of that: a ring within each node while a ring of nodes exchanges the rest, the slower of
/// the two counts.
double all_gather_seconds(const Network& network, double bytes);

/// A timed all-reduce.
struct TimedAllReduce {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// The link that leads to these times on a ring of `ranks`, through the smallest and the largest of
/// them. Needs two sizes or more and two ranks or more; a larger one that took no longer gives
/// bytes_per_s = 0.
Link fitted_link(const std::vector<TimedAllReduce>& runs, int64_t ranks);

}  // namespace ddp::train
