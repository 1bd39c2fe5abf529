// trainer's ranks meet at the store that ddp-run has served, or at rank 0's: the numbers are the
// same.
#include "tests/support/catch.h"

#include "tests/e2e/job.h"
#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

const Words kShort{"trainer_config.max_steps=6"};

TEST_CASE("two ranks that meet at ddp-run's store learn what they learn at rank 0's") {
  const Workspace by_agent, by_rank0;
  succeed(launched(by_agent, 2, kShort));
  auto rank0 = launched(by_rank0, 2, kShort);
  rank0.set["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  succeed(rank0);
  CHECK(content_sha256(by_agent) == content_sha256(by_rank0));
}

}  // namespace
}  // namespace ddp::test
