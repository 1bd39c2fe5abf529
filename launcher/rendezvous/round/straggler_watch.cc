#include "launcher/rendezvous/round/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// Seconds and the number of ranks that they stand for.
using Weighted = std::pair<double, int>;

double weighted_median(std::vector<Weighted> values) {
  std::sort(values.begin(), values.end());
  int total = 0;
  for (const auto& [seconds, weight] : values) total += weight;
  int passed = 0;
  for (const auto& [seconds, weight] : values) {
    passed += weight;
    if (2 * passed > total) return seconds;
  }
  return 0;
}

struct NodePhase {
  const NodePace* node;
  const PhasePace* pace;
};

struct Finding {
  Straggler straggler;
  double cost = 0;  // seconds that it keeps the others waiting, on average
};

// Looks at one phase on all nodes that report it; at least one does.
std::optional<Finding> find_in_phase(const std::vector<NodePhase>& nodes) {
  const auto worst = std::max_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return a.pace->slowest.p95 < b.pace->slowest.p95;
  });
  std::vector<Weighted> p95s, means;
  const auto add = [&](const PaceTimes& times, int ranks) {
    p95s.emplace_back(times.p95, ranks);
    means.emplace_back(times.mean, ranks);
  };
  for (const NodePhase& one : nodes) {
    if (one.pace->other_ranks > 0) add(one.pace->others, one.pace->other_ranks);
    if (one.node != worst->node) add(one.pace->slowest, 1);
  }
  if (p95s.empty()) return std::nullopt;
  const PhasePace& pace = *worst->pace;
  const Straggler found{.rank = pace.slowest_rank,
                        .node = worst->node->node,
                        .host = worst->node->host,
                        .phase = pace.phase,
                        .seconds = pace.slowest.p95,
                        .others = weighted_median(std::move(p95s))};
  const double cost = pace.slowest.mean - weighted_median(std::move(means));
  const bool slow = found.seconds >= kStragglerFactor * found.others && cost > 0 &&
                    cost >= kStragglerCost * worst->node->step_seconds;
  return slow ? std::optional(Finding{found, cost}) : std::nullopt;
}

}  // namespace

std::optional<Straggler> find_straggler(const std::vector<NodePace>& nodes) {
  std::map<std::string, std::vector<NodePhase>> phases;
  for (const NodePace& node : nodes) {
    for (const PhasePace& pace : node.phases) phases[pace.phase].push_back({&node, &pace});
  }
  std::optional<Finding> worst;
  for (const auto& [phase, on_nodes] : phases) {
    auto found = find_in_phase(on_nodes);
    if (found && (!worst || found->cost > worst->cost)) worst = std::move(found);
  }
  return worst ? std::optional(worst->straggler) : std::nullopt;
}

void StragglerWatch::look(const std::vector<NodePace>& nodes, Clock::time_point now) {
  auto found = find_straggler(nodes);
  if (!found || !seen_ || !found->same_as(*seen_)) seen_since_ = now;
  seen_ = std::move(found);
  if (!seen_ || now - seen_since_ >= kPersistence) confirmed_ = seen_;
}

std::string straggler_text(const Straggler& straggler) {
  return fmt::format(
      "rank {} (node {}, {}) is slow, and the other ranks wait for it: 95th percentile of its time "
      "in {} over 30 s: {:.3g} s, of the others: {:.3g} s",
      straggler.rank, straggler.node, printable(straggler.host), printable(straggler.phase),
      straggler.seconds, straggler.others);
}

}  // namespace ddp::launch
