#include "trainer/snapshot/round_fence.h"

#include <cstdlib>

#include "launcher/worker_contract.h"

namespace ddp::train {

RoundFence RoundFence::of_environment() {
  const char* job = std::getenv(launch::kRoundJob);
  const char* epoch = std::getenv(launch::kRoundEpoch);
  if (job == nullptr || epoch == nullptr) return {};
  return {job, std::strtoll(epoch, nullptr, 10)};
}

}  // namespace ddp::train
