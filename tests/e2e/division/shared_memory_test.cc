// All-reduces of the ranks of one machine through memory that they share.
#include <chrono>
#include <csignal>
#include "tests/support/catch.h"

#include "tests/e2e/lone_rank.h"
#include "tests/e2e/saved_state.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const std::string kSockets = "distributed_config.backend=gloo";
const std::string kShares = "backend gloo with shared memory";

Words to_step(int step, const std::string& more = "") {
  Words words = {"trainer_config.max_steps=" + std::to_string(step)};
  if (!more.empty()) words.push_back(more);
  return words;
}

}  // namespace

TEST_CASE("two ranks learn through shared memory bit for bit what they learn through sockets") {
  const Workspace memory, sockets;
  const auto by_memory = succeed(launched(memory, 2, to_step(10)));
  const auto by_sockets = succeed(launched(sockets, 2, to_step(10, kSockets)));
  CHECK_THAT(by_memory.out, Contains(kShares));
  CHECK_THAT(by_sockets.out, !Contains(kShares) && Contains("backend gloo"));
  CHECK(differences(memory.snapshot(), sockets.snapshot()) == Words{});
  CHECK(steps_of(by_memory.out) == steps_of(by_sockets.out));
}

TEST_CASE("four ranks learn bit for bit what one process learns from four micro-batches") {
  const Workspace four, one;
  const auto by_four = succeed(launched(four, 4, to_step(10)));
  const auto by_one = succeed(alone(one, to_step(10, "trainer_config.grad_accumulation_steps=4")));
  CHECK_THAT(by_four.out, Contains(kShares));
  CHECK(differences(four.snapshot(), one.snapshot()) == Words{});
}

TEST_CASE("a rank whose peer is killed ends at once, and says that another one went first") {
  const Workspace place;
  const int port = unused_port();
  // In the forward pass, so that the other one waits for its gradients.
  const Words overrides = {"trainer_config.fault_plan=['rank=1 step=12 phase=forward kind=kill']"};
  ChildProgram rank_0(lone_rank(place, 0, 2, port, overrides));
  ChildProgram rank_1(lone_rank(place, 1, 2, port, overrides));
  CHECK(rank_1.wait_exit(kPatience) == -SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  CHECK(rank_0.wait_exit(kPatience) == 1);
  CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(25));  // timeout_s is 30
  INFO(rank_0.out() << rank_0.err());
  CHECK_THAT(rank_0.out(), Contains(kShares));
  REQUIRE(errors_of(rank_0.err()).size() == 1);
  CHECK_THAT(errors_of(rank_0.err()).front(),
             Contains("rank 0: lost the connection to another rank (Connection closed by peer), "
                      "which ended first"));
}

TEST_CASE("where one of the ranks gets no shared memory, all of them use sockets") {
  const Workspace place;
  const int port = unused_port();
  auto options = lone_rank(place, 1, 2, port, to_step(5));
  // Long enough for its own files: it writes none.
  options.argv.insert(options.argv.begin(), {"prlimit", "--fsize=100000", "--"});
  ChildProgram rank_0(lone_rank(place, 0, 2, port, to_step(5)));
  ChildProgram rank_1(options);
  CHECK(rank_1.wait_exit(kPatience) == 0);
  CHECK(rank_0.wait_exit(kPatience) == 0);
  rank_0.wait_all_gone(kPatience);
  CHECK_THAT(rank_0.out(), Contains("backend gloo") && !Contains(kShares));
}

}  // namespace ddp::test
