// Ranks without a launcher, which would end the others when one of them fails.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Rank `rank` of `ranks` on this machine, which meet at `port`.
inline ChildOptions lone_rank(const Workspace& place, int rank, int ranks, int port,
                              const Words& overrides) {
  auto options = alone(place, overrides);
  options.unset.clear();
  options.set.insert({{"RANK", std::to_string(rank)},
                      {"LOCAL_RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(ranks)},
                      {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(port)}});
  return options;
}

}  // namespace ddp::test
