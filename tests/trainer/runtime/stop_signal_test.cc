// What SIGUSR1, a scheduler's notice, does to a process that saves and to one that has nothing to
// save.
#include "trainer/runtime/process/stop_signal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include "tests/support/catch.h"

#include "launcher/worker_contract.h"

namespace ddp::train {
namespace {

/// The wait status of a copy of this process that does `work`, and ends with 0 if that returns.
int status_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

int exit_of(const std::function<void()>& work) {
  const int status = status_of(work);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("a notice of preemption never ends a run that saves") {
  for (const int first : {SIGTERM, SIGUSR1}) {
    CHECK(exit_of([first] {
            const StopSignal stop;
            ::raise(first);
            ::raise(SIGUSR1);
            if (StopSignal::pending() != first) ::_exit(1);
          }) == 0);
  }
  CHECK(exit_of([] {
          const StopSignal stop;
          ::raise(SIGUSR1);
          ::raise(SIGTERM);
        }) == -SIGTERM);
}

TEST_CASE("a notice of preemption ends a run that has nothing to save as preempted") {
  CHECK(exit_of([] {
          end_when_preempted();
          ::raise(SIGUSR1);
        }) == launch::kExitPreempted);
  CHECK(exit_of([] {  // between two jobs of a sweep
          end_when_preempted();
          { const StopSignal stop; }
          ::raise(SIGUSR1);
        }) == launch::kExitPreempted);
  CHECK(exit_of([] {
          ::signal(SIGUSR1, SIG_IGN);
          end_when_preempted();
          ::raise(SIGUSR1);
        }) == 0);
  CHECK(exit_of([] {  // after the end of the only run
          end_when_preempted();
          {
            const StopSignal stop;
            ignore_preemption();
          }
          ::raise(SIGUSR1);
        }) == 0);
}

}  // namespace ddp::train
