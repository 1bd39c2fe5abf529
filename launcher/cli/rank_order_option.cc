#include "launcher/cli/rank_order_option.h"

#include <fmt/format.h>

#include <string>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cluster/scheduler.h"
#include "launcher/rendezvous/round/rank_order.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestKey = 256;

std::string key_in(const std::string& variable, const Environment& environment) {
  const auto found = environment.find(variable);
  if (found == environment.end() || found->second.empty()) {
    usage_error(
        fmt::format("--rank-order={0}: the environment variable {0} is not set on this node; use "
                    "{1}, {2}, or a variable that is set on every node",
                    printable(variable), kOrderByHost, kOrderByArrival));
  }
  if (found->second.size() > kLongestKey) {
    usage_error(fmt::format("--rank-order={}: the variable's value has {} bytes; use at most {}",
                            variable, found->second.size(), kLongestKey));
  }
  return found->second;
}

}  // namespace

void take_rank_order(GroupSettings& group, const OptionValues& values,
                     const Environment& environment) {
  const std::string& by = values.text("rank-order");
  if (by.empty())
    value_error("rank-order", by, "host, arrival, or the name of an environment variable");
  group.rules.rank_order = by;
  if (by == kOrderByArrival) return;
  group.sort_key = by == kOrderByHost ? slurm_place(environment) : key_in(by, environment);
}

}  // namespace ddp::launch
