// Faults injected on purpose: what they are called, whom they meet. Also heartbeats.
#include "trainer/health/fault_plan.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/health/heartbeat_file.h"
#include "trainer/health/step_times.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Wait status of a child that comes to the moment.
int status_after(const FaultPlan& plan, Phase phase, int64_t step) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    plan.at(phase, step);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return status;
}

}  // namespace

TEST_CASE("a fault is read from words in any order") {
  const Fault fault = parse_fault("kind=exit  step=12 value=3 phase=evaluation rank=2 attempt=1");
  CHECK(fault.rank == 2);
  CHECK(fault.step == 12);
  CHECK(fault.phase == Phase::kEvaluation);
  CHECK(fault.kind == FaultKind::kExit);
  CHECK(fault.attempt == 1);
  CHECK(fault.value == 3);
  CHECK(parse_fault("kind=hang step=1").phase == Phase::kData);
}

TEST_CASE("a word that is not known is named, with those that are") {
  const auto message = [](const char* text) {
    return test::error_of<UserError>([&] { parse_fault(text); });
  };
  CHECK_THAT(message("step=1"), Catch::Contains("no kind"));
  CHECK_THAT(message("kind=kil"), Catch::Contains("'kil', known are kill, abort"));
  CHECK_THAT(message("kind=kill phase=back"), Catch::Contains("'back', known are start, data"));
  CHECK_THAT(message("kind=kill step=-1"), Catch::Contains("step=-1 is not a whole number"));
  CHECK_THAT(message("kind=kill at=3"), Catch::Contains("unknown word 'at=3'"));
  CHECK_THAT(message("kind=kill step=1x"), Catch::Contains("step=1x"));
}

TEST_CASE("a fault meets its rank, its attempt, its phase and its step, and nobody else") {
  const std::vector<std::string> texts = {"rank=1 step=3 phase=backward kind=kill attempt=1"};
  CHECK(FaultPlan(texts, 0, 1).empty());
  CHECK(FaultPlan(texts, 1, 0).empty());
  const FaultPlan plan(texts, 1, 1);
  CHECK(plan.descriptions().size() == 1);
  CHECK(status_after(plan, Phase::kForward, 3) == 0);
  CHECK(status_after(plan, Phase::kBackward, 4) == 0);
  const int status = status_after(plan, Phase::kBackward, 3);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

TEST_CASE("the kinds do what they say") {
  const auto plan = [](const std::string& kind) {
    return FaultPlan({"step=1 phase=forward " + kind}, 0, 0);
  };
  CHECK(WTERMSIG(status_after(plan("kind=abort"), Phase::kForward, 1)) == SIGABRT);
  CHECK(WEXITSTATUS(status_after(plan("kind=exit value=7"), Phase::kForward, 1)) == 7);
  CHECK(WIFSTOPPED(status_after(plan("kind=stop"), Phase::kForward, 1)));
  for (const char* others :
       {"kind=nan", "kind=nan_here", "kind=disk_full", "kind=corrupt", "kind=drift"})
    CHECK(status_after(plan(others), Phase::kForward, 1) == 0);
  CHECK(plan("kind=nan").plans(FaultKind::kNan, 1));
  CHECK_FALSE(plan("kind=nan").plans(FaultKind::kNan, 2));
  CHECK_FALSE(plan("kind=nan").plans(FaultKind::kCorrupt, 1));
}

TEST_CASE("DDP_FAULT_PLAN adds to the configuration") {
  ::setenv("DDP_FAULT_PLAN", "step=1 kind=kill; rank=0 step=2 kind=abort ;", 1);
  const FaultPlan plan({"step=3 kind=stop"}, 0, 0);
  ::unsetenv("DDP_FAULT_PLAN");
  CHECK(plan.descriptions().size() == 3);
}

TEST_CASE("a heartbeat is one line that replaces the one before") {
  const test::TestFolder folder;
  HeartbeatFile file("beat");
  file.beat("step=123456 phase=backward");
  file.beat("step=2");
  const std::string text = test::read_file("beat");
  CHECK(text.starts_with("step=2   "));
  CHECK(text.find('\n') == text.size() - 1);
  HeartbeatFile("").beat("x");
  HeartbeatFile("/nowhere/at/all").beat("x");
}

TEST_CASE("step times: median and longest of the last ones") {
  StepTimes times;
  CHECK(times.median() == 0.0);
  for (const double seconds : {1.0, 5.0, 2.0}) times.add(seconds);
  CHECK(times.median() == 2.0);
  CHECK(times.longest() == 5.0);
  for (int i = 0; i < 256; ++i) times.add(0.5);
  CHECK(times.longest() == 0.5);
  CHECK(times.count() == 256);
}

}  // namespace ddp::train
