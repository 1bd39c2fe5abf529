// The rarer ways through the agent: preemption, suspension, standby workers. Scripted, without
// processes.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>
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

const ExitStatus kPreempted{kExitPreempted, 0};

TEST_CASE("who wrote its error file first has failed first, whoever is gone first") {
  PhaseScene scene;
  scene.os.script.emplace_back([](FakeRunner& os) {
    namespace fs = std::filesystem;
    const auto write = [&](std::size_t rank, int age) {
      const std::string file = os.rounds[0][rank].environment.at("TORCHELASTIC_ERROR_FILE");
      std::ofstream(file) << "{}";
      fs::last_write_time(file, fs::file_time_type::clock::now() - seconds(age));
    };
    write(0, 3);
    write(1, 1);
    write(2, 2);
    return std::vector{FakeRunner::exited(os.pid(2), {1, 0})};
  });
  scene.os.exits(0, {4, 0}).exits(1, {5, 0});
  const RunResult result = scene.run(3);
  REQUIRE(result.failures.size() == 2);
  CHECK(result.failures[0].rank == 0);
  CHECK(exit_code(result) == 4);
  CHECK(result.stopped == 1);
}

TEST_CASE("an exit code in an error file that no process can have is taken for 1") {
  for (const auto& [written, code] : {std::pair{7, 7}, {255, 255}, {256, 1}, {0, 1}}) {
    INFO(written);
    PhaseScene scene;
    scene.os.script.emplace_back([number = written](FakeRunner& os) {
      namespace fs = std::filesystem;
      const auto write = [&os](std::size_t rank, const std::string& text, int age) {
        const std::string file = os.rounds[0][rank].environment.at("TORCHELASTIC_ERROR_FILE");
        std::ofstream(file) << text;
        fs::last_write_time(file, fs::file_time_type::clock::now() - seconds(age));
      };
      write(0, R"({"message":{"message":"m","errorCode":)" + std::to_string(number) + "}}", 3);
      write(1, "{}", 1);
      return std::vector{FakeRunner::exited(os.pid(1), {3, 0})};
    });
    scene.os.exits(0, {0, SIGTERM});  // stopped, as the other one has failed
    const RunResult result = scene.run(2);
    REQUIRE(!result.failures.empty());
    CHECK(result.failures[0].rank == 0);
    CHECK(exit_code(result) == code);
  }
}

TEST_CASE("a job that is suspended does not restart before it is woken") {
  PhaseScene scene;
  scene.os.signalled(SIGTSTP, false);
  scene.os.exits(0, {0, SIGKILL});
  scene.os.script.emplace_back([](FakeRunner& os) {
    CHECK(os.rounds.size() == 1);
    return std::vector{Event{.kind = Event::Kind::kSignal, .signal = SIGCONT}};
  });
  scene.os.exits(0, {});
  CHECK(scene.run(1, 1).restarts == 1);
}

TEST_CASE("the grace does not run out while the job is suspended") {
  PhaseScene scene;
  scene.plan.grace = seconds(30);
  scene.os.exits(1, {3, 0});
  scene.os.signalled(SIGTSTP, false);
  scene.os.signalled(SIGCONT, false, std::chrono::hours(1));
  scene.os.exits(0, {0, SIGTERM});
  CHECK(exit_code(scene.run(2)) == 3);
  CHECK(std::count(scene.os.calls.begin(), scene.os.calls.end(), sent(SIGKILL)) == 0);
}

TEST_CASE("workers that were preempted leave by themselves, and that is no failure to restart") {
  PhaseScene scene;
  scene.os.exits(1, kPreempted).exits(0, kPreempted);
  const RunResult result = scene.run(2, 3);
  CHECK(result.outcome == Outcome::kPreempted);
  CHECK(exit_code(result) == kExitPreempted);
  CHECK(scene.os.calls == Calls{"start 2", "sweep"});
}

TEST_CASE("a worker that does not leave with the preempted ones is stopped after the grace") {
  PhaseScene scene;
  scene.os.exits(1, kPreempted).time_passes().exits(0, {0, SIGTERM});
  CHECK(scene.run(2).outcome == Outcome::kPreempted);
  CHECK(scene.os.calls == Calls{"start 2", sent(SIGTERM), sent(SIGCONT), "sweep"});
}

TEST_CASE("of a failure and a preemption the failure is the cause") {
  PhaseScene scene;
  scene.os.exits(1, kPreempted).exits(0, {3, 0});
  const RunResult result = scene.run(2);
  CHECK(result.outcome == Outcome::kFailed);
  CHECK(exit_code(result) == 3);
}

TEST_CASE("workers that save after a signal end the job as preempted, others as interrupted") {
  PhaseScene saved, not_saved;
  saved.os.signalled(SIGTERM, true);
  saved.os.exits(0, kPreempted).exits(1, {});
  CHECK(saved.run(2).outcome == Outcome::kPreempted);
  not_saved.os.signalled(SIGTERM, true);
  not_saved.os.exits(0, kPreempted).exits(1, {0, SIGTERM});
  CHECK(exit_code(not_saved.run(2)) == 128 + SIGTERM);
}

TEST_CASE("a job that is interrupted before its next round names the failure of the last one") {
  struct OneRound : LocalRendezvous {
    using LocalRendezvous::LocalRendezvous;
    void join() override {
      if (!std::exchange(joined, true)) LocalRendezvous::join();
    }
    bool joined = false;
  };
  AgentScene scene;
  scene.os.exits(0, {3, 0}).signalled(SIGINT, true);
  const RunResult result = scene.run<OneRound>(1, 1);
  CHECK(exit_code(result) == 128 + SIGINT);
  REQUIRE(result.failures.size() == 1);
  CHECK(result.failures[0].exit.code == 3);
  CHECK(result.attempt == 0);
  CHECK(result.earlier.empty());
}

TEST_CASE("a worker that saved before the job was interrupted has not failed") {
  PhaseScene scene;
  scene.os.exits(0, kPreempted).signalled(SIGINT, true).exits(1, {0, SIGINT});
  const RunResult result = scene.run(2);
  CHECK(exit_code(result) == 128 + SIGINT);
  CHECK(result.failures.empty());
}

TEST_CASE("preemption is worth a restart when the user says so") {
  PhaseScene scene;
  scene.plan.restarts.retry_codes = {kExitPreempted};
  scene.os.exits(0, kPreempted).exits(0, {});
  const RunResult result = scene.run(1, 1);
  CHECK(result.outcome == Outcome::kSucceeded);
  CHECK(result.restarts == 1);
}

FakeRunner& offer_standby(FakeRunner& os, int workers) {
  os.script.emplace_back([=](FakeRunner& self) {
    for (int rank = 0; rank < workers; ++rank) self.signs[rank].offers_standby = true;
    return std::vector{Event{.kind = Event::Kind::kHeartbeatBegan}};
  });
  return os;
}

TEST_CASE("standby workers are started once all workers of a round support them") {
  PhaseScene scene;
  scene.plan.standby_workers = true;
  offer_standby(scene.os, 1).time_passes();  // the second one has not
  scene.os.time_passes([](FakeRunner& self) {
    CHECK(self.standby.empty());
    self.signs[1].offers_standby = true;
  });
  scene.os.gets(
      {.kind = Event::Kind::kHeartbeatBegan});  // of another file: they are not started twice
  scene.os.exits(1, {0, SIGKILL}).exits(0, {0, SIGTERM});
  scene.os.exits(0, {}).exits(1, {});
  CHECK(scene.run(2, 1).outcome == Outcome::kSucceeded);
  CHECK(scene.os.calls == Calls{"start 2", "standby 2", sent(SIGTERM), sent(SIGCONT), "sweep",
                                "start 2", "end standby", "sweep"});
}

TEST_CASE("a standby worker has the job's settings but not a round's") {
  PhaseScene scene;
  scene.plan.standby_workers = true;
  offer_standby(scene.os, 1);
  scene.os.then([](FakeRunner& self) {
    REQUIRE(self.standby.size() == 1);
    const WorkerSpec& standby = self.standby[0];
    for (const auto& [name, value] : standby.environment)
      CHECK(self.rounds[0][0].environment.at(name) == value);
    for (const char* name : {kRank, kWorldSize, kMasterPort, kRestartCount, kErrorFile})
      CHECK(standby.environment.count(name) == 0);
    CHECK(standby.environment.count(kLocalRank) == 1);
    CHECK(standby.environment.count(kRunId) == 1);
    return std::vector{FakeRunner::exited(self.pid(0), {})};
  });
  CHECK(scene.run(1, 1).outcome == Outcome::kSucceeded);
}

TEST_CASE("there are no standby workers when no restart is left or without --warm-spares") {
  PhaseScene scene;
  const int max_restarts = GENERATE(0, 1);
  scene.plan.standby_workers = max_restarts == 0;
  offer_standby(scene.os, 1).exits(0, {});
  CHECK(scene.run(1, max_restarts).outcome == Outcome::kSucceeded);
  CHECK(scene.os.calls == Calls{"start 1", "sweep"});
}

TEST_CASE("a signal that ends the job ends its standby workers first") {
  PhaseScene scene;
  scene.plan.standby_workers = true;
  offer_standby(scene.os, 1).signalled(SIGTERM, true).exits(0, {0, SIGTERM});
  scene.run(1, 1);
  CHECK(scene.os.calls ==
        Calls{"start 1", "standby 1", "end standby", sent(SIGTERM), sent(SIGCONT), "sweep"});
}

}  // namespace
}  // namespace ddp::launch
