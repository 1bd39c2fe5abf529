// The rank that the others wait for is named, across nodes as well; even ranks never are. These
// take a minute: a straggler is judged by 30 s of steps, and must be one for 20 s.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include "tests/support/catch.h"

#include "tests/e2e/job.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using nlohmann::json;

// Most of a step is sleep, so that the machine's load does not decide which rank is slow.
Words slowed(int rank_0, int rank_1) {
  const auto fault = [](int rank, int milliseconds) {
    return "'rank=" + std::to_string(rank) +
           " step=2 phase=forward kind=slow value=" + std::to_string(milliseconds) + "'";
  };
  return {"trainer_config.max_steps=100000", "trainer_config.save_every_steps=null",
          "trainer_config.log_every_steps=100",
          "trainer_config.fault_plan=[" + fault(0, rank_0) + "," + fault(1, rank_1) + "]"};
}

std::vector<json> stragglers_in(const std::string& file) {
  std::vector<json> found;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (stream.eof()) break;  // it is still being written
    const json event = json::parse(line);
    if (event["metadata"]["state"] == "STRAGGLER") found.push_back(event["metadata"]);
  }
  return found;
}

void wait_for_straggler_in(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (stragglers_in(file).empty()) {
    if (std::chrono::steady_clock::now() > deadline) FAIL("no straggler in the events " << file);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST_CASE("a slow rank on another node is named on the first node, and in the events of all",
          "[waits]") {
  const Workspace place;
  const int port = unused_port();
  const auto node = [&](const std::string& name) {
    auto options = launched(
        place, 1, slowed(60, 240),
        {"--nnodes=2:2", "--rdzv-backend=c10d", "--rank-order=PLACE",
         "--rdzv-endpoint=127.0.0.1:" + std::to_string(port), "--events=" + (place / name)});
    options.set["PLACE"] = name;
    return options;
  };
  ChildProgram second(node("n10"));
  ChildProgram first(node("n9"));  // comes later, but has rank 0
  first.wait_for(" is slow, and the other ranks wait for it", 1, kPatience);
  CHECK_THAT(first.err(), Contains("ddp-run: rank 1 (node 1, "));
  CHECK_THAT(first.err(), Contains("95th percentile of its time in forward over 30 s: "));
  // The other node learns of it with its host's next message.
  for (const char* name : {"n9", "n10"}) wait_for_straggler_in(place / name);
  first.signal(SIGTERM);
  second.signal(SIGTERM);
  first.wait_exit(kPatience);
  second.wait_exit(kPatience);
  CHECK_THAT(second.err(), !Contains(" is slow"));
  for (const char* name : {"n9", "n10"}) {
    const auto events = stragglers_in(place / name);
    REQUIRE(events.size() == 1);
    CHECK(events[0]["global_rank"] == 1);
    const json details = json::parse(events[0]["metadata"].get<std::string>());
    CHECK(details["node"] == 1);
    CHECK(details["phase"] == "forward");
    CHECK(details["seconds"].get<double>() >= 1.5 * details["others_seconds"].get<double>());
  }
}

TEST_CASE("ranks that are equally slow are never named", "[long]") {
  const Workspace place;
  ChildProgram job(launched(place, 2, slowed(80, 80)));
  job.wait_for("Step 900 ", 1, kPatience);  // after 72 s at least
  job.signal(SIGTERM);
  job.wait_exit(kPatience);
  CHECK_THAT(job.err(), !Contains(" is slow"));
}

}  // namespace
}  // namespace ddp::test
