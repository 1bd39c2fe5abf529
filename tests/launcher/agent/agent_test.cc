#include "launcher/agent/agent.h"

#include <csignal>

#include "tests/support/catch.h"

#include "launcher/agent/exit_watch.h"
#include "launcher/rendezvous/local_rendezvous.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/job_status.h"
#include "tests/launcher/agent/agent_scene.h"

namespace ddp::launch {
namespace {

using Calls = std::vector<std::string>;

TEST_CASE("a group that succeeds is started once and swept") {
  AgentScene scene;
  scene.os.exits(1, {}).exits(0, {});
  CHECK(exit_code(scene.run(2, 3)) == 0);
  CHECK(scene.os.calls == Calls{"start 2", "sweep"});
  CHECK(scene.os.notes.empty());
  CHECK(scene.os.rounds[0][1].command.argv[1] == "--rank=1");
}

TEST_CASE("workers that still run a minute after others have exited are named once") {
  AgentScene scene;
  scene.os.exits(0, {}).time_passes().exits(2, {}).exits(1, {});
  CHECK(exit_code(scene.run(3)) == 0);
  CHECK(scene.os.now() == Clock::time_point(std::chrono::seconds(60)));
  CHECK(scene.os.notes ==
        Calls{"rank 0 has exited, ranks 1, 2 still run after 60 s; --exit-grace=SECONDS stops such "
              "workers"});
}

TEST_CASE("when all workers of another node have exited, the first node that still runs says so") {
  FakeRunner os;
  std::vector<Worker> workers(2);
  for (int rank : {0, 1}) workers[static_cast<std::size_t>(rank)].rank = rank + 2;
  for (const bool first : {true, false}) {
    ExitWatch watch(std::chrono::milliseconds(0));
    watch.begin_round();
    watch.exited_elsewhere({"node 0", first}, os.now());
    CHECK(watch.next_look() == os.now() + std::chrono::seconds(60));
    os.pass(std::chrono::seconds(60));
    CHECK(watch.look(workers, os).empty());
  }
  const std::string rest =
      ", rank 3 still runs after 60 s; --exit-grace=SECONDS stops such workers";
  workers[0].state = WorkerState::kSucceeded;
  ExitWatch both(std::chrono::milliseconds(0));
  both.exited(os.now());
  both.exited_elsewhere({"nodes 0, 2", false}, os.now());
  os.pass(std::chrono::seconds(60));
  both.look(workers, os);
  CHECK(os.notes ==
        Calls{"all of node 0 have exited, ranks 2, 3 still run after 60 s; --exit-grace=SECONDS "
              "stops such workers",
              "rank 2 and all of nodes 0, 2 have exited" + rest});
}

TEST_CASE("after the grace period of --exit-grace workers that still run are hung") {
  AgentScene scene;
  scene.plan.exit_grace = std::chrono::seconds(90);
  scene.os.exits(0, {}).exits(2, {}).time_passes().time_passes().exits(1, {0, SIGKILL});
  const RunResult result = scene.run(3);
  CHECK(scene.os.now() == Clock::time_point(std::chrono::seconds(90)));
  CHECK(scene.os.notes == Calls{"ranks 0, 2 have exited, rank 1 still runs after 60 s"});
  CHECK(exit_code(result) == 124);
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].rank == 1);
  CHECK(result.failures[0].hang == "still running 90 s after ranks 0, 2 exited (--exit-grace)");
  CHECK(scene.os.calls ==
        Calls{"start 3", sent(SIGKILL) + " to 1", sent(SIGTERM), sent(SIGCONT), "sweep"});
}

TEST_CASE("workers that leave while ddp-run is stopped have left in time") {
  AgentScene scene;
  scene.plan.hangs.timeout = scene.plan.exit_grace = std::chrono::seconds(90);
  scene.os.exits(0, {}).then(FakeRunner::stop_after_reading).exits(1, {});
  CHECK(exit_code(scene.run(2)) == 0);
  CHECK(scene.os.notes.empty());
}

TEST_CASE("a failed worker stops the others and its exit code is the job's") {
  AgentScene scene;
  scene.os.exits(1, {7, 0}).exits(0, {0, SIGTERM});
  const RunResult result = scene.run(2);
  CHECK(result.outcome == Outcome::kFailed);
  CHECK(exit_code(result) == 7);
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].last_stderr == "stderr of 1\n");
  CHECK(result.stopped == 1);
  CHECK(scene.os.calls == Calls{"start 2", sent(SIGTERM), sent(SIGCONT), "sweep"});
}

TEST_CASE("a failed worker restarts the whole group on a new port, after a sweep") {
  AgentScene scene;
  scene.os.exits(0, {0, SIGKILL}).exits(1, {0, SIGTERM}).exits(0, {}).exits(1, {});
  const RunResult result = scene.run(2, 3);
  CHECK(result.outcome == Outcome::kSucceeded);
  CHECK(result.restarts == 1);
  CHECK(scene.os.calls ==
        Calls{"start 2", sent(SIGTERM), sent(SIGCONT), "sweep", "start 2", "sweep"});
  CHECK(scene.os.rounds[0][0].environment.at("MASTER_PORT") !=
        scene.os.rounds[1][0].environment.at("MASTER_PORT"));
  CHECK(scene.os.rounds[1][0].environment.at("TORCHELASTIC_RESTART_COUNT") == "1");
  REQUIRE(scene.os.notes.size() == 1);
  CHECK(scene.os.notes[0] == "rank 0 (local rank 0, pid 100): killed by SIGKILL; restart 1 of 3");
}

TEST_CASE("the store of each round is served before its workers start, and ends with the job") {
  AgentScene scene;
  scene.serves_store = true;
  scene.os.exits(0, {1, 0}).exits(0, {});
  CHECK(scene.run(1, 1).outcome == Outcome::kSucceeded);
  const Calls& calls = scene.os.calls;
  CHECK_THAT(calls.at(0), Catch::StartsWith("serve store on "));
  CHECK_THAT(calls.at(3), Catch::StartsWith("serve store on "));
  CHECK(calls ==
        Calls{calls.at(0), "start 1", "sweep", calls.at(3), "start 1", "stop store", "sweep"});
  CHECK(scene.os.rounds[0][0].environment.at("TORCHELASTIC_USE_AGENT_STORE") == "True");
}

Event store_lost() {
  return {.kind = Event::Kind::kStoreLost, .exit = {0, SIGKILL}, .cause = "the store ended"};
}

TEST_CASE("a lost store stops the workers like a failed one, and is the cause of theirs") {
  AgentScene scene;
  scene.os.then([](FakeRunner& os) {
    return std::vector{FakeRunner::exited(os.pid(1), {1, 0}), store_lost()};
  });
  scene.os.exits(0, {0, SIGTERM}).exits(0, {}).exits(1, {});
  CHECK(scene.run(2, 1).outcome == Outcome::kSucceeded);
  CHECK(scene.os.calls ==
        Calls{"start 2", sent(SIGTERM), sent(SIGCONT), "sweep", "start 2", "sweep"});
  CHECK(scene.os.notes == std::vector<std::string>{"the store ended; restart 1 of 1"});
}

TEST_CASE("a store that is lost when it is needed no more changes nothing") {
  AgentScene done;
  done.os.then([](FakeRunner& os) {
    return std::vector{store_lost(), FakeRunner::exited(os.pid(0), {})};
  });
  CHECK(done.run(1).outcome == Outcome::kSucceeded);
  AgentScene failing;
  failing.os.exits(1, {3, 0}).gets(store_lost()).exits(0, {0, SIGTERM});
  CHECK(exit_code(failing.run(2)) == 3);
}

TEST_CASE("a store that is lost while only other nodes use it is named in one line") {
  struct FirstOfTwoNodes : LocalRendezvous {
    using LocalRendezvous::LocalRendezvous;
    bool has_news() const override { return !waits && LocalRendezvous::has_news(); }
    std::optional<JobNews> take_news() override {
      auto news = waits ? std::nullopt : LocalRendezvous::take_news();
      if (news && news->kind == JobNews::Kind::kStart) news->round.group_world_size = 2;
      return news;
    }
    void report_end(NodeEnd end) override {
      waits = true;  // for the other node
      LocalRendezvous::report_end(std::move(end));
    }
    bool waits = false;
  };
  AgentScene scene;
  FirstOfTwoNodes rendezvous("127.0.0.1", 0, /*agent_store=*/true, scene.plan.restarts);
  scene.os.exits(0, {}).then([&](FakeRunner&) {
    rendezvous.waits = false;
    return std::vector{store_lost()};
  });
  CHECK(scene.run_at(rendezvous).outcome == Outcome::kSucceeded);
  CHECK(scene.os.notes ==
        Calls{"the store ended; workers of other nodes that still use it will fail"});
}

TEST_CASE(
    "a --stdin-rank beyond the ranks of several nodes is an error, in an elastic job a line") {
  struct OneOfTwoNodes : LocalRendezvous {
    using LocalRendezvous::LocalRendezvous;
    std::optional<JobNews> take_news() override {
      auto news = LocalRendezvous::take_news();
      if (news && news->kind == JobNews::Kind::kStart) news->round.world_size = 2;
      return news;
    }
  };
  const std::string line = "--stdin-rank=2: the job has ranks 0 to 1";
  AgentScene fixed, elastic;
  fixed.plan.stdin_rank = elastic.plan.stdin_rank = 2;
  CHECK_THROWS_WITH(fixed.run<OneOfTwoNodes>(1), line);
  CHECK(fixed.os.rounds.empty());
  elastic.plan.elastic = true;
  elastic.os.exits(0, {});
  CHECK(exit_code(elastic.run<OneOfTwoNodes>(1)) == 0);
  CHECK(elastic.os.notes == Calls{line});
}

TEST_CASE("restarts come to an end") {
  AgentScene scene;
  scene.os.exits(0, {5, 0}).exits(0, {6, 0}).exits(0, {7, 0});
  const RunResult result = scene.run(1, 2);
  CHECK(exit_code(result) == 7);
  CHECK(result.restarts == 2);
  CHECK(scene.os.rounds.size() == 3);
}

TEST_CASE("a restart that cannot be started uses up one restart, not all") {
  AgentScene scene;
  scene.os.broken = {1};
  scene.os.exits(0, {5, 0}).time_passes().exits(0, {});
  const RunResult result = scene.run(1, 3);
  CHECK(result.outcome == Outcome::kSucceeded);
  CHECK(result.restarts == 2);
  CHECK(scene.os.notes.at(1) == "cannot restart the workers: cannot execute 'x'; restart 2 of 3");
}

TEST_CASE("a job whose restarts all fail to start ends with their exit code") {
  AgentScene scene;
  scene.os.broken = {1, 2};
  scene.os.exits(0, {5, 0}).time_passes().time_passes();
  const RunResult result = scene.run(1, 2);
  CHECK(exit_code(result) == 127);
  CHECK(result.restarts == 2);
  CHECK_FALSE(result.failures.at(0).is_worker());
}

TEST_CASE("a restart may wait, with nothing left running") {
  AgentScene scene;
  scene.plan.restarts.delay = std::chrono::seconds(2);
  scene.os.exits(0, {5, 0}).exits(0, {5, 0}).time_passes().exits(0, {});
  CHECK(scene.run(1, 2).outcome == Outcome::kSucceeded);
  CHECK(scene.os.calls == Calls{"start 1", "sweep", "start 1", "sweep", "start 1", "sweep"});
  CHECK_THAT(scene.os.notes.at(0), Catch::EndsWith("restart 1 of 2"));
  CHECK_THAT(scene.os.notes.at(1), Catch::EndsWith("restart 2 of 2 in 2 s"));
}

TEST_CASE("a signal while a restart waits ends the job, and the failure before it is kept") {
  AgentScene scene;
  scene.plan.restarts.delay = std::chrono::seconds(1);
  scene.os.exits(0, {5, 0}).exits(0, {5, 0}).signalled(SIGINT, /*ends_job=*/true);
  const RunResult result = scene.run(1, 2);
  CHECK(result.outcome == Outcome::kInterrupted);
  CHECK(exit_code(result) == 128 + SIGINT);
  CHECK(scene.os.rounds.size() == 2);
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].exit.code == 5);
}

TEST_CASE("the status of a job says that its restart waits") {
  AgentScene scene;
  scene.plan.restarts.delay = std::chrono::seconds(2);
  HttpAnswer health;
  scene.os.exits(0, {5, 0}).exits(0, {5, 0});
  scene.os.time_passes([&](FakeRunner&) { health = answer_about(scene.status(), "/health"); });
  scene.os.exits(0, {});
  CHECK(scene.run(1, 2).outcome == Outcome::kSucceeded);
  CHECK(health.status == "200 OK");
  CHECK_THAT(health.body, Catch::Contains("\"status\":\"waiting to restart\""));
}

TEST_CASE("a crash loop ends before the restarts do") {
  AgentScene scene;
  scene.plan.restarts.crash_loop = 2;
  scene.os.exits(0, {5, 0}).exits(0, {5, 0});
  const RunResult result = scene.run(1, 100);
  CHECK(exit_code(result) == 5);
  CHECK_THAT(result.gave_up, Catch::Contains("the same way 2 times in a row"));
}

TEST_CASE("the grace that peers take to stop makes no quick failure a slow one") {
  AgentScene scene;
  scene.plan.restarts.crash_loop = 2;
  // Rank 1 fails at once; rank 0 ignores SIGTERM for the whole grace of 30 s.
  scene.os.exits(1, {5, 0}).time_passes().exits(0, {0, SIGKILL});
  scene.os.exits(1, {5, 0}).time_passes().exits(0, {0, SIGKILL});
  const RunResult result = scene.run(2, 100);
  CHECK(result.restarts == 1);
  CHECK_THAT(result.gave_up, Catch::Contains("rank 1 failed the same way 2 times in a row"));
}

TEST_CASE("of two failures in one wake-up the death by a signal is the cause") {
  AgentScene scene;
  scene.os.then([](FakeRunner& os) {
    return std::vector{FakeRunner::exited(os.pid(0), {1, 0}),
                       FakeRunner::exited(os.pid(1), {0, SIGSEGV})};
  });
  const RunResult result = scene.run(2);
  REQUIRE(result.failures.size() == 2);
  CHECK(result.failures[0].rank == 1);
  CHECK(exit_code(result) == 128 + SIGSEGV);
}

TEST_CASE("the cause is what failed first: before the launcher's signal, a signal before a code") {
  struct Row {
    const char* what;
    ExitStatus first;   // of rank 1, which is seen first
    ExitStatus second;  // of rank 0, after it was asked to stop
    bool dying;         // rank 0 had begun to end before
    int cause;
  };
  const Row rows[] = {
      {"stopped by the launcher's signal", {1, 0}, {0, SIGTERM}, false, 1},
      {"killed when the grace is over", {1, 0}, {0, SIGKILL}, false, 1},
      {"crashed on its way out", {1, 0}, {0, SIGSEGV}, false, 1},
      {"gave a code on its way out", {1, 0}, {3, 0}, false, 1},
      {"crashed, and its peer lost it", {1, 0}, {0, SIGSEGV}, true, 0},
      {"killed for its memory, and its peer lost it", {1, 0}, {0, SIGKILL}, true, 0},
      {"both with a code: the one that was seen first", {1, 0}, {3, 0}, true, 1},
      {"crashed, and its peer aborted", {0, SIGABRT}, {0, SIGSEGV}, true, 0},
      {"both by a signal: the one that was seen first", {0, SIGBUS}, {0, SIGSEGV}, true, 1},
      {"its peer was killed, it gave a code", {0, SIGSEGV}, {3, 0}, true, 1},
      {"its peer aborted, it gave a code", {0, SIGABRT}, {3, 0}, true, 1},
      {"done", {1, 0}, {0, 0}, true, 1},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    AgentScene scene;
    if (row.dying) scene.os.dying = {0};
    scene.os.exits(1, row.first).exits(0, row.second);
    CHECK(scene.run(2).failures.at(0).rank == row.cause);
  }
}

TEST_CASE("a worker that fails after it was told to stop is no cause") {
  AgentScene scene;
  scene.os.exits(1, {3, 0}).exits(0, {0, SIGSEGV}).exits(2, {1, 0});
  const RunResult result = scene.run(3);
  CHECK(exit_code(result) == 3);
  CHECK(result.failures.size() == 1);
  CHECK(result.stopped == 2);
}

TEST_CASE("workers that ignore SIGTERM are killed when the grace is over") {
  AgentScene scene;
  scene.os.exits(0, {3, 0}).time_passes().exits(1, {0, SIGKILL});
  CHECK(exit_code(scene.run(2)) == 3);
  CHECK(scene.os.calls == Calls{"start 2", sent(SIGTERM), sent(SIGCONT), sent(SIGKILL), "sweep"});
}

TEST_CASE("a worker that survives SIGKILL is named and left behind") {
  AgentScene scene;
  scene.os.survivors = {"pid 101 (state D)"};
  scene.os.exits(0, {3, 0}).time_passes().time_passes();
  const RunResult result = scene.run(2, 5);
  CHECK(exit_code(result) == 3);
  CHECK(result.survivors == scene.os.survivors);
}

TEST_CASE("a signal is passed on as it is and ends the job without a restart") {
  AgentScene scene;
  scene.os.signalled(SIGINT, true).exits(0, {0, SIGINT}).exits(1, {});
  const RunResult result = scene.run(2, 3);
  CHECK(result.outcome == Outcome::kInterrupted);
  CHECK(exit_code(result) == 128 + SIGINT);
  CHECK(scene.os.calls == Calls{"start 2", sent(SIGINT), sent(SIGCONT), "sweep"});
}

TEST_CASE("a second signal kills at once, a double of the first does not") {
  AgentScene scene;
  scene.os.signalled(SIGTERM, true).signalled(SIGTERM, true);
  scene.os.signalled(SIGINT, true, std::chrono::seconds(1)).exits(0, {0, SIGKILL});
  CHECK(exit_code(scene.run(1)) == 128 + SIGTERM);
  CHECK(scene.os.calls == Calls{"start 1", sent(SIGTERM), sent(SIGCONT), sent(SIGKILL), "sweep"});
}

TEST_CASE("a signal that does not end the job is only passed on") {
  AgentScene scene;
  scene.os.signalled(SIGUSR1, false).exits(0, {});
  CHECK(exit_code(scene.run(1)) == 0);
  CHECK(scene.os.calls == Calls{"start 1", "forward " + std::to_string(SIGUSR1), "sweep"});
}

TEST_CASE("what the workers left behind has time to end before the restart") {
  AgentScene scene;
  scene.os.then([](FakeRunner& os) {
    os.lingers = true;
    return std::vector{FakeRunner::exited(os.pid(0), {3, 0})};
  });
  scene.os.then([&](FakeRunner& os) {
    CHECK(os.calls == Calls{"start 1"});
    CHECK(scene.status().phase == Phase::kLingering);
    os.lingers = false;
    return std::vector{Event{.kind = Event::Kind::kLeftoversEnded}};
  });
  scene.os.exits(0, {});
  CHECK(exit_code(scene.run(1, 1)) == 0);
  CHECK(scene.os.calls == Calls{"start 1", "sweep", "start 1", "sweep"});
}

TEST_CASE("any failure is reported with the OOM killer's calls") {
  AgentScene scene;
  scene.os.oom =
      "out of memory: the kernel killed a process in this job's cgroup (oom_kill +1 in its cgroup)";
  scene.os.exits(0, {0, SIGKILL});
  scene.os.exits(0, {1, 0});
  const RunResult result = scene.run(1, 1);
  CHECK(scene.os.notes.at(0) ==
        "rank 0 (local rank 0, pid 100): killed by SIGKILL (out of memory); restart 1 of 1");
  CHECK_THAT(failure_report(result, {}), Catch::Contains("): " + scene.os.oom + "\n"));
}

TEST_CASE("when the launcher dies everything is killed at once") {
  AgentScene scene;
  scene.os.gets({.kind = Event::Kind::kGuardianGone}).exits(0, {0, SIGKILL});
  CHECK(scene.run(1, 3).outcome == Outcome::kGuardianGone);
  CHECK(scene.os.calls == Calls{"start 1", sent(SIGKILL), "sweep"});
}

}  // namespace
}  // namespace ddp::launch
