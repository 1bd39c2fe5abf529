#include "trainer/app/exit_report.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "launcher/worker_contract.h"
#include "tests/support/catch.h"

#include "trainer/runtime/error.h"

namespace ddp::train {

TEST_CASE("an error of a disk exits 1, also in Arrow's words, and no C++ word is shown") {
  const auto reported = [](const auto& error) {
    try {
      throw error;
    } catch (...) {
      return std::pair(current_exception_text(), report_current_exception());
    }
  };
  CHECK(reported(UserError("a.parquet: IOError: read. Detail: [errno 5] Input/output error"))
            .second == launch::kExitFailed);
  CHECK(reported(UserError("a.parquet: no column")).second == launch::kExitUsage);
  const std::filesystem::filesystem_error loop(
      "status", "m/x", std::make_error_code(std::errc::too_many_symbolic_link_levels));
  CHECK(reported(loop) ==
        std::pair<std::string, int>("m/x: cannot be accessed: Too many levels of symbolic links",
                                    launch::kExitFailed));
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK_THAT(reported(std::system_error(no_thread)).first,
             Catch::Contains("cannot start a thread: ") && Catch::Contains("ulimit -u"));
}

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
