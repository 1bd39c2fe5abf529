// Hangs, as the agent sees them. Scripted, without processes.
#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "launcher/base/signal_names.h"
#include "launcher/report/failure_report.h"
#include "launcher/worker_contract.h"
#include "tests/launcher/agent/agent_scene.h"

namespace ddp::launch {
namespace {

using Calls = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a hang is waited for no longer than the limit, then its stacks and the others' end") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.has_debugger = true;
  scene.os.signs[0].at = Clock::time_point(seconds(3));
  scene.os.signs[1].text = "step=9";
  for (int looks = 0; looks < 14; ++looks) scene.os.time_passes();  // from half of it on
  scene.os.gets({.kind = Event::Kind::kStacksDumped});
  scene.os.exits(0, {0, SIGTERM}).exits(1, {0, SIGTERM});
  const RunResult result = scene.run(2);
  CHECK(scene.os.now() == Clock::time_point(seconds(5)));
  CHECK(scene.os.calls == Calls{"start 2", "stacks of 1", "stacks of 0", sent(SIGKILL) + " to 1",
                                sent(SIGTERM), sent(SIGCONT), "sweep"});
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].rank == 1);
  CHECK_THAT(result.failures[0].hang, Catch::Equals("silent for 5.0 s, state S of 1"));
  CHECK(result.failures[0].heartbeat == "step=9");
  CHECK(exit_code(result) == kExitHang);
  CHECK(result.stopped == 1);
}

TEST_CASE("while debuggers show the stacks of workers, their silence is no hang") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.has_debugger = true;
  scene.os.cut = 1;
  scene.os.signs[1].progress.waiting = "allreduce#3";
  scene.os.time_passes();  // half of the timeout: the next look is after 5 s
  scene.os.signalled(kStacksSignal, false, milliseconds(2400));
  scene.os.signalled(kStacksSignal, false);  // one request
  scene.os.gets(Event{.kind = Event::Kind::kLeftoversEnded}, milliseconds(600));
  scene.os.time_passes().exits(0, {}).exits(1, {});
  CHECK(scene.run(2).outcome == Outcome::kSucceeded);
  CHECK(scene.os.now() == Clock::time_point(milliseconds(64'900)));  // a debugger that does not end
  CHECK(scene.os.calls == Calls{"start 2", "stacks of 0", "stacks of 1", "sweep"});
  REQUIRE(scene.os.notes.size() == 1);
  CHECK_THAT(scene.os.notes[0],
             Catch::Contains("names no collective; last sign of life 64.9 s ago\nstacks of 0\n") &&
                 Catch::Contains("waits for its peers in allreduce#3; ") &&
                 Catch::Contains("stacks of 1\n\nincomplete after 60 s: the stacks of rank 1; "));
}

TEST_CASE("a group that writes no first heartbeat is looked at without --hang-timeout") {
  const Clock::time_point t0{};
  const auto look = [&](const HangRules& rules) {
    HangMonitor monitor(rules);
    monitor.begin_round(t0);
    return monitor.next_look();
  };
  CHECK(look({.first_heartbeat = seconds(300)}) == t0 + seconds(150));
  CHECK(look({.timeout = seconds(8), .first_heartbeat = seconds(300)}) == t0 + seconds(4));
  CHECK_FALSE(look({.heed_promises = false, .first_heartbeat = seconds(300)}));
  CHECK_FALSE(look({}));
}

TEST_CASE("silence while ddp-run holds the workers up does not count") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.held_up = Clock::time_point(seconds(3));
  scene.os.time_passes().time_passes();
  scene.os.exits(0, {}).exits(1, {});
  CHECK(scene.run(2).outcome == Outcome::kSucceeded);
  CHECK(scene.os.now() == Clock::time_point(milliseconds(5500)));  // looked, found no host
}

TEST_CASE("a worker that waits for a CPU is slow, not hung: that time does not count") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.time_passes([](FakeRunner& os) {
    os.cpu_times.waited = seconds(100);  // since it began, which does not explain this silence
  });
  scene.os.time_passes([](FakeRunner& os) { os.cpu_times.waited += seconds(2); });
  scene.os.time_passes().exits(0, {0, SIGABRT}).exits(1, {});
  CHECK(exit_code(scene.run(2)) == kExitHang);
  CHECK(scene.os.now() == Clock::time_point(seconds(7)));
  REQUIRE(scene.os.notes.size() >= 1);
  CHECK_THAT(scene.os.notes[0], Catch::Contains("workers had to wait 2.0 s for a CPU"));
}

TEST_CASE("a wait for a CPU that is too short to be printed is allowed for without a line") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.time_passes();
  scene.os.time_passes([](FakeRunner& os) { os.cpu_times.waited += milliseconds(20); });
  scene.os.exits(0, {}).exits(1, {});
  CHECK(scene.run(2).outcome == Outcome::kSucceeded);
  CHECK(scene.os.notes.empty());
}

TEST_CASE("a stopped worker is found in time on the busiest machine") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.held = {0};
  scene.os.time_passes();
  scene.os.time_passes([](FakeRunner& os) { os.cpu_times.waited += seconds(2); });
  scene.os.exits(0, {0, SIGABRT}).exits(1, {});
  CHECK(exit_code(scene.run(2)) == kExitHang);
  CHECK(scene.os.now() == Clock::time_point(seconds(5)));
}

TEST_CASE("a stopped worker is the cause, also when another one is overdue before it") {
  PhaseScene scene;
  const Clock::time_point t0{};
  scene.os.signs[0] = {t0, seconds(5), "step=2", {}};
  scene.os.signs[1] = {t0, seconds(60), "step=2", {}};
  scene.os.held = {1};
  scene.os.gets({.kind = Event::Kind::kHeartbeatBegan});
  for (int looks = 0; looks < 26; ++looks) scene.os.time_passes();
  scene.os.exits(0, {0, SIGABRT}).exits(1, {0, SIGABRT});
  const RunResult result = scene.run(2);
  REQUIRE(result.failures.size() == 2);
  CHECK(result.failures[0].rank == 1);
  CHECK(result.failures[0].hang == "silent for 5.0 s, state T of 1; others are waiting for it");
}

TEST_CASE("a signal that is passed on is no sign of life of a worker") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.signalled(SIGUSR1, false, seconds(2));
  scene.os.time_passes().time_passes().exits(0, {0, SIGABRT});
  CHECK(exit_code(scene.run(1)) == kExitHang);
  CHECK(scene.os.now() == Clock::time_point(seconds(5)));
}

TEST_CASE("without a debugger a worker that hangs is asked for its stack by SIGABRT") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.time_passes().time_passes().exits(0, {0, SIGABRT});
  CHECK(exit_code(scene.run(1)) == kExitHang);
  CHECK(scene.os.calls ==
        Calls{"start 1", "stacks of 0", sent(SIGABRT) + " to 0", sent(SIGCONT) + " to 0", "sweep"});
}

TEST_CASE("a worker whose debugger may not attach is asked for its stack by SIGABRT") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.has_debugger = true;
  scene.os.time_passes().time_passes();
  scene.os.gets({.kind = Event::Kind::kStacksDumped, .without_stacks = {0}});
  scene.os.exits(0, {0, SIGABRT}).exits(1, {0, SIGTERM});
  CHECK(exit_code(scene.run(2)) == kExitHang);
  CHECK(scene.os.calls == Calls{"start 2", "stacks of 0", "stacks of 1", sent(SIGABRT) + " to 0",
                                sent(SIGCONT) + " to 0", sent(SIGKILL) + " to 0", sent(SIGTERM),
                                sent(SIGCONT), "sweep"});
}

TEST_CASE("a stopped worker is killed at once, without a debugger") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.has_debugger = true;
  scene.os.held = {1};
  scene.os.time_passes().time_passes();
  scene.os.exits(1, {0, SIGKILL}).exits(0, {0, SIGTERM});
  CHECK(exit_code(scene.run(2)) == kExitHang);
  CHECK(scene.os.now() == Clock::time_point(seconds(5)));
  CHECK(scene.os.calls == Calls{"start 2", "threads of 1", "threads of 0", sent(SIGKILL) + " to 1",
                                sent(SIGTERM), sent(SIGCONT), "sweep"});
}

TEST_CASE("a debugger that does not come to an end is not waited for") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.has_debugger = true;
  scene.os.time_passes().time_passes().time_passes().time_passes().exits(0, {0, SIGKILL});
  CHECK(exit_code(scene.run(1)) == kExitHang);
  CHECK(scene.os.calls == Calls{"start 1", "stacks of 0", sent(SIGKILL) + " to 0", sent(SIGTERM),
                                sent(SIGCONT), sent(SIGKILL), "sweep"});
}

TEST_CASE("a hang restarts the group like any failure") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.time_passes().time_passes().exits(0, {0, SIGABRT}).exits(0, {});
  const RunResult result = scene.run(1, 1);
  CHECK(result.outcome == Outcome::kSucceeded);
  CHECK(result.restarts == 1);
}

TEST_CASE("a worker that goes on at its own pace is no hang, whoever looks") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  for (int i = 0; i < 3; ++i) {
    scene.os.time_passes([](FakeRunner& os) { os.signs[0].at = os.now() + seconds(4); });
  }
  scene.os.exits(0, {});
  CHECK(scene.run(1).outcome == Outcome::kSucceeded);
}

TEST_CASE("while the job is suspended no rank hangs") {
  PhaseScene scene;
  scene.plan.hangs.timeout = seconds(5);
  scene.os.signalled(SIGTSTP, false);
  scene.os.signalled(SIGCONT, false, std::chrono::hours(8));
  scene.os.exits(0, {});
  CHECK(scene.run(1).outcome == Outcome::kSucceeded);
  CHECK(scene.os.calls == Calls{"start 1", sent(SIGSTOP), sent(SIGCONT), "sweep"});
}

}  // namespace
}  // namespace ddp::launch
