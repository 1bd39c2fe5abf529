#include "trainer/app/exit_report.h"

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "launcher/worker_contract.h"
#include "tests/support/catch.h"

namespace ddp::train {

// As an error of a GPU does that a thread of torch meets first; abort() would be signal 6.
TEST_CASE("an exception that leaves a thread ends the process as a failed run") {
  const pid_t child = ::fork();
  if (child == 0) {
    end_with_uncaught_exceptions();
    std::thread([] { throw std::runtime_error("CUDA error: unspecified launch failure"); }).join();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == launch::kExitFailed);
}

}  // namespace ddp::train
