// What the agent does with a check of its node: scripted events, no process and no clock.
#include <csignal>

#include "tests/launcher/agent/agent_scene.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Calls = std::vector<std::string>;

struct CheckedScene : AgentScene {
  CheckedScene() {
    plan.host = "gpu1";
    plan.preflight = Preflight{.shown = "./check", .command = {"/check", {"check"}}};
  }
  FakeRunner& checked(ExitStatus exit, const std::string& said = "") {
    return os.gets({.kind = Event::Kind::kCheckEnded, .exit = exit, .cause = said});
  }
};

TEST_CASE("workers start after the check has passed, and are restarted after another one") {
  CheckedScene scene;
  scene.checked({}).exits(0, {3, 0});
  scene.checked({}).exits(0, {});
  CHECK(exit_code(scene.run(1, 1)) == 0);
  CHECK(scene.os.calls == Calls{"check /check", "sweep", "start 1", "sweep", "check /check",
                                "sweep", "start 1", "sweep"});
}

TEST_CASE("a node that fails its check starts nothing and says why") {
  CheckedScene scene;
  scene.checked({3, 0}, "error: no GPU");
  const RunResult result = scene.run(1, 5);
  CHECK(exit_code(result) == 1);
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].cause ==
        "preflight failed on gpu1: ./check exited with 3: error: no GPU");
  CHECK(scene.os.rounds.empty());
}

TEST_CASE("a check that takes too long is killed, the first one after five minutes") {
  CheckedScene scene;
  scene.os.time_passes();
  const auto began = scene.os.now();
  CHECK_THAT(scene.run(1).failures.at(0).cause, Contains("did not end within 300 s"));
  CHECK(scene.os.now() - began == std::chrono::minutes(5));
  CHECK(scene.os.calls.front() == "check /check");
  CHECK(scene.os.calls.at(1) == "sweep");

  CheckedScene later;
  later.checked({}).exits(0, {3, 0}).time_passes();
  CHECK_THAT(later.run(1, 1).failures.at(0).cause, Contains("did not end within 10 s"));
}

TEST_CASE("a check that ends while ddp-run is stopped has not taken too long") {
  CheckedScene scene;
  scene.os.then(FakeRunner::stop_after_reading);
  scene.checked({}).exits(0, {});
  CHECK(exit_code(scene.run(1)) == 0);
  CHECK(scene.os.calls == Calls{"check /check", "sweep", "start 1", "sweep"});
}

TEST_CASE("a signal during the check interrupts the job") {
  CheckedScene scene;
  scene.os.signalled(SIGTERM, true);
  const RunResult result = scene.run(1);
  CHECK(result.outcome == Outcome::kInterrupted);
  CHECK(exit_code(result) == 128 + SIGTERM);
}

}  // namespace
}  // namespace ddp::launch
