#include "launcher/report/failure_report.h"
#include "launcher/agent/failure_order.h"
#include "launcher/base/run_result.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>

#include "tests/support/catch.h"

#include "tests/support/child_program.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;

struct InUtc {
  InUtc() { set("UTC"); }
  ~InUtc() { set(before.empty() ? nullptr : before.c_str()); }
  static void set(const char* zone) {
    zone ? ::setenv("TZ", zone, 1) : ::unsetenv("TZ");
    ::tzset();
  }
  std::string before = std::getenv("TZ") ? std::getenv("TZ") : "";
};

RunResult failed(std::vector<ProcessFailure> failures) {
  RunResult result;
  result.outcome = Outcome::kFailed;
  result.failures = std::move(failures);
  return result;
}

TEST_CASE("the report names the root cause first and the rest briefly") {
  const TempFolder folder;
  const InUtc utc;
  const auto file = folder.write("e", R"({"message":"no more paper"})");
  RunResult result =
      failed({{1, 5, 123, {7, 0}, file, "one\n\ntwo\n"}, {0, 4, 122, {1, 0}, "", {}}});
  result.failures[0].time = 1732172800.9;
  result.stopped = 6;
  result.restarts = 3;
  result.max_restarts = 3;
  CHECK(failure_report(result, {"node7", 8, 18, "/logs"}) ==
        "ddp-run: the job failed; first failure: rank 5, exit code 7\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2024-11-21_07:06:40\n"
        "  host      : node7\n"
        "  rank      : 5 (local_rank: 1) of 8\n"
        "  exitcode  : 7 (pid: 123)\n"
        "  error_file: " +
            file +
            "\n"
            "  traceback : no more paper\n"
            "  stderr    : one\n"
            "              two\n"
            "  also      : rank 4 (pid 122): exit code 1\n"
            "  stopped   : 6 other workers\n"
            "  restarts  : 3 of 3 used\n"
            "  logs      : /logs\n");
}

TEST_CASE("a death by a signal comes with its likely cause") {
  const std::string report =
      failure_report(failed({{0, 0, 9, {0, SIGKILL}, "", {}}}), {"h", 1, 18, ""});
  CHECK(report.find("exitcode  : -9 (pid: 9) (SIGKILL): often the OOM killer") !=
        std::string::npos);
}

TEST_CASE("the report has at most 30 lines, however long the messages are") {
  const TempFolder folder;
  std::string stack, log;
  for (int i = 0; i < 100; ++i) {
    const std::string line = "line " + std::to_string(i) + std::string(500, 'x');
    stack += line + "\\n";
    log += line + "\n";
  }
  const auto file = folder.write(
      "e", R"({"message":{"message":"m","extraInfo":{"py_callstack":")" + stack + R"("}}})");
  std::vector<ProcessFailure> failures;
  for (int rank = 0; rank < 100; ++rank) failures.push_back({rank, rank, rank, {1, 0}, file, log});
  RunResult result = failed(failures);
  result.stopped = 3;
  result.max_restarts = 1;
  const std::string report = failure_report(result, {"h", 200, 18, "/logs"});
  CHECK(test::lines_of(report).size() == 30);
  CHECK(report.find("also      : 91 more\n") != std::string::npos);
  CHECK(report.find("line 99") != std::string::npos);
}

TEST_CASE("control characters of a message do not reach the terminal") {
  const TempFolder folder;
  const auto file = folder.write("e", R"({"message":"a\u001b[31mb\u0000c"})");
  const std::string report =
      failure_report(failed({{0, 0, 1, {1, 0}, file, {}}}), {"h", 1, 18, ""});
  CHECK(report.find("a?[31mb?c") != std::string::npos);
}

TEST_CASE("failures of one wake-up are ordered by signal, then age of the error file, then rank") {
  const TempFolder folder;
  const auto young = folder.write("young", "{}");
  const auto old = folder.write("old", "{}");
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, old.c_str(), times, 0) == 0);
  std::vector<ProcessFailure> batch{{0, 0, 1, {1, 0}, "", {}},
                                    {1, 1, 2, {1, 0}, young, {}},
                                    {2, 2, 3, {1, 0}, old, {}},
                                    {3, 3, 4, {0, SIGKILL}, "", {}},
                                    {4, 4, 5, {1, 0}, "", {}}};
  order_failures(batch);
  std::vector<int> ranks;
  for (const auto& failure : batch) ranks.push_back(failure.rank);
  CHECK(ranks == std::vector{3, 2, 1, 0, 4});
}

TEST_CASE("who wrote an error file failed before those that abort when a peer is gone") {
  const TempFolder folder;
  const auto file_of_second = [&](const char* name, time_t second) {
    auto path = folder.write(name, "{}");
    const timespec times[2] = {{second, 0}, {second, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    return path;
  };
  const auto file = file_of_second("file", 1000);
  struct Case {
    const char* what;
    ProcessFailure other;  // of rank 0, seen at the same second as rank 3, or later
    int cause;
  };
  const auto death = [](int code, int signal, double time, const std::string& error_file = "") {
    ProcessFailure failure{0, 0, 10, {code, signal}, error_file, {}};
    failure.time = time;
    return failure;
  };
  const auto younger = file_of_second("younger", 1001);
  const std::vector<Case> cases = {
      {"aborted, as by a watchdog", death(0, SIGABRT, 1000.003), 3},
      {"aborted, with an error file of its own", death(0, SIGABRT, 1001, younger), 3},
      {"told to end", death(0, SIGTERM, 1000.003), 3},
      {"an exit code alone", death(1, 0, 1000.003), 3},
      {"a crash at the same moment", death(0, SIGSEGV, 1000.003), 0},
      {"a crash when the other was long gone", death(0, SIGSEGV, 1002), 3}};
  for (const auto& [what, other, cause] : cases) {
    INFO(what);
    ProcessFailure wrote{3, 3, 13, {1, 0}, file, {}};
    wrote.time = 1000.001;
    std::vector<ProcessFailure> batch{other, wrote};
    order_failures(batch);
    CHECK(batch[0].rank == cause);
    // Seen in another wake-up, before it.
    std::vector<ProcessFailure> failures{other};
    add_simultaneous(failures, {wrote});
    CHECK(failures[0].rank == cause);
  }
  std::vector<ProcessFailure> without_files{death(0, SIGABRT, 1000), {3, 3, 13, {1, 0}, "", {}}};
  order_failures(without_files);
  CHECK(without_files[0].rank == 3);
}

TEST_CASE("the exit code is the worker's, or 128 + signal") {
  CHECK(exit_code(failed({{0, 0, 1, {9, 0}, "", {}}})) == 9);
  CHECK(exit_code(failed({{0, 0, 1, {0, SIGABRT}, "", {}}})) == 128 + SIGABRT);
  CHECK(exit_code({}) == 0);
  RunResult interrupted;
  interrupted.outcome = Outcome::kInterrupted;
  interrupted.signal = SIGTERM;
  CHECK(exit_code(interrupted) == 143);
}

TEST_CASE("the final report of a success is empty unless --summary asks for the table") {
  RunResult result;
  result.workers.resize(1);
  CHECK(final_report(result, {}).empty());
  CHECK_THAT(final_report(result, {.summary = true}), Catch::Contains("max RSS MiB\n"));
  result.survivors = {"pid 12 (state D)"};
  CHECK(final_report(result, {}) == "error: pid 12 (state D) could not be killed\n");
}

TEST_CASE("a usage error that trainer has printed is reported in one line, any other in full") {
  RunResult result = failed({{0, 0, 1, {2, 0}, "", "unknown key\n"}});
  result.program = WorkerProgram::kTrainer;
  result.workers.resize(1);
  const std::string line = final_report(result, {.logs = "/logs"});
  CHECK_THAT(line, Catch::StartsWith("ddp-run: the job failed: trainer rejected its ") &&
                       Catch::EndsWith("; see its message; logs: /logs\n"));
  CHECK_THAT(final_report(result, {.shows_all_ranks = false}), Catch::Contains("Root Cause"));
  result.program = WorkerProgram::kOther;
  CHECK_THAT(final_report(result, {}), Catch::Contains("Root Cause"));
}

TEST_CASE("the next round is told the cause in a few words") {
  ProcessFailure failure;
  failure.rank = 3;
  failure.exit = {0, SIGKILL};
  failure.time = 1732170000.1234;
  CHECK(failure_json(failure, 2) ==
        R"({"rank":3,"cause":"SIGKILL","time":1732170000.123,"attempt":2})");
  failure.exit = {7, 0};
  CHECK_THAT(failure_json(failure, 0), Catch::Contains(R"("cause":"exit code 7")"));
  failure.hang = "silent for 5.0 s";
  CHECK_THAT(failure_json(failure, 0), Catch::Contains(R"("cause":"hang")"));
}

}  // namespace
}  // namespace ddp::launch
