// Whatever a worker leaves as its error file gives a message, which fits into the report.
#include "launcher/report/error_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "launcher/base/run_result.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/run_record.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("error.json", MFD_CLOEXEC);
  FUZZ_CHECK(file >= 0);
  FUZZ_CHECK(::write(file, data, size) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  FUZZ_CHECK(read_error_file(path).has_value());

  RunResult result;
  result.outcome = Outcome::kFailed;
  ProcessFailure failure;
  failure.exit.code = 3;
  failure.error_file = path;
  failure.last_stderr.assign(reinterpret_cast<const char*>(data), size);
  result.failures = {failure};
  result.workers.resize(1);
  const std::string report = failure_report(result, {"host", 1, 18, ""});
  FUZZ_CHECK(std::count(report.begin(), report.end(), '\n') <= 30);
  FUZZ_CHECK(!result_json(result, "id", "host", 1).empty());
  FUZZ_CHECK(exit_code(result) == 3);
  ::close(file);
  return 0;
}
