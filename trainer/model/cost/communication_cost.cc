#include "trainer/model/cost/communication_cost.h"

#include <algorithm>

namespace ddp::train {
namespace {

/// The share of all but one of n equal pieces.
double share_of_others(double n) { return (n - 1.0) / n; }

}  // namespace

double all_gather_bytes(int64_t ranks, double bytes) {
  return bytes * share_of_others(static_cast<double>(ranks));
}

double all_gather_seconds(const Network& network, double bytes) {
  const auto local = static_cast<double>(network.ranks_of_node());
  const auto nodes = static_cast<double>(network.nodes);
  double latency = 0.0;
  double sending = 0.0;
  if (local > 1) {
    latency += (local - 1) * network.inside.latency_s;
    sending = bytes * share_of_others(local) / network.inside.bytes_per_s;
  }
  if (nodes > 1) {
    latency += (nodes - 1) * network.between.latency_s;
    const double node_bytes_per_s = local * network.between.bytes_per_s;
    sending = std::max(sending, bytes * share_of_others(nodes) / node_bytes_per_s);
  }
  return latency + sending;
}

Link fitted_link(const std::vector<TimedAllReduce>& runs, int64_t ranks) {
  const auto [small, large] = std::minmax_element(
      runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  // Seconds of a ring: 2 (N - 1) latency + 2 bytes (N - 1) / N / bandwidth.
  const auto n = static_cast<double>(ranks);
  const double slope = (large->seconds - small->seconds) / (large->bytes - small->bytes);
  if (!(slope > 0.0)) return {};
  const double start = std::max(0.0, small->seconds - slope * small->bytes);
  return {start / (2 * (n - 1)), 2 * share_of_others(n) / slope};
}

}  // namespace ddp::train
