// What takes seconds: tag `waits`.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "tests/launcher/ddp_run.h"
#include "tests/launcher/paused_reader.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

#ifdef DDP_SANITIZED
constexpr bool kSanitized = true;  // memory and system calls are then not ddp-run's own
#else
constexpr bool kSanitized = false;
#endif

struct LauncherState {
  long agent_rss = 0;  // KiB
  long agent_fds = 0;
  long guardian_rss = 0;
  long guardian_fds = 0;
};

LauncherState state_in(const std::string& line) {
  LauncherState state;
  const auto at = line.find("agent");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(line.c_str() + at, "agent rss %ld fds %ld guardian rss %ld fds %ld end",
                      &state.agent_rss, &state.agent_fds, &state.guardian_rss,
                      &state.guardian_fds) == 4);
  return state;
}

TEST_CASE("a thousand restarts take no further memory and no descriptor", "[waits]") {
  const TempFolder logs;
  const TempFolder tmp;
  // Sanitizers take ten times the time; what they look for shows in fewer rounds.
  const std::string last = kSanitized ? "200" : "1000";
  ChildProgram job(stub_job(
      tmp,
      {"--nproc_per_node=2", "--max_restarts=" + last, "--healthy-after=0.001", "-t3",
       "--log-dir=" + logs.path(), "--fold-lines=10", "--log-line-prefix-template=${time} ",
       "--log-max-size=64K"},
      {"err=trouble\\n", "#100@0launcher-state", "#100@1wait", "#" + last + "@0launcher-state",
       "#" + last + "exit=0", "repeat=20:a line\\n", "exit=1"}));
  job.wait_all_gone(std::chrono::minutes(3));
  REQUIRE(job.wait_exit() == 0);
  Lines states;
  for (const auto& line : job.out_lines()) {
    if (line.find("agent rss") != std::string::npos) states.push_back(line);
  }
  REQUIRE(states.size() == 2);
  const LauncherState early = state_in(states[0]);
  const LauncherState late = state_in(states[1]);
  INFO(states[0] + "\n" + states[1]);
  CHECK(late.agent_fds <= early.agent_fds + 8);  // a worker more or less may have ended already
  CHECK(late.guardian_fds == early.guardian_fds);
  if (kSanitized) return;
  // The history of restarts has one small entry each; the rest is what the allocator keeps.
  CHECK(late.agent_rss <= early.agent_rss + 128);
  CHECK(late.guardian_rss <= early.guardian_rss + 16);
  CHECK(nothing_left(tmp));
}

TEST_CASE("workers are not held up by a console that nobody reads", "[waits]") {
  // 32 MiB from each of two workers, more than pipe and backlog hold, into a pipe that is not read.
  const TempFolder logs;
  const TempFolder tmp;
  PausedReader reader;
  auto options =
      stub_job(tmp, {"-t1", "--nproc_per_node=2", "--log-dir=" + logs.path()},
               {"repeat=524288:0123456789012345678901234567890123456789012345678901234567890123\\n",
                "err=written\\n", "wait"});
  ChildProgram job(reader.redirect(">$pipe", options));
  job.wait_for("written", 2);
  job.signal(SIGKILL);
  // Nor does it keep the agent alive when ddp-run has exited: both ends of the pipe are still here.
  job.wait_all_gone(std::chrono::milliseconds(4'500));  // LogPump's patience with a console is 5 s
}

TEST_CASE("logs that stay because the console has not taken them are named", "[waits]") {
  const TempFolder tmp;
  const TempFolder results;
  PausedReader reader;
  auto options =
      stub_job(tmp, {"-t1", "--result-json=" + (results / "r")}, {"repeat=16384:0123456789\\n"});
  ChildProgram job(reader.redirect(">$pipe", options));
  wait_for_file(results / "r");  // all workers have ended; the rest of the console is due
  job.signal(SIGTERM);
  CHECK_THAT(job.wait_for("the console missed some output; "),
             Contains("full logs: " + tmp.path() + "/ddp-run_"));
  CHECK(job.wait_exit() == 0);
  CHECK_FALSE(nothing_left(tmp));
}

TEST_CASE("the report of a failure waits for a reader that pauses", "[waits]") {
  const TempFolder tmp;
  const TempFolder results;
  PausedReader reader;
  auto options = stub_job(tmp, {"-t3", "--result-json=" + (results / "r")},
                          {"repeat=16384:0123456789\\n", "err=at last\\n", "exit=7"});
  ChildProgram job(reader.redirect(">$pipe 2>&1", options));
  wait_for_file(results / "r");  // all workers have ended; the rest of the console is due
  CHECK_THROWS(job.wait_exit(std::chrono::seconds(6)));
  const std::string text = reader.read_all();
  CHECK(job.wait_exit() == 7);
  const auto lines = lines_of(text);
  CHECK(std::count(lines.begin(), lines.end(), "[default0]:0123456789") == 16384);
  CHECK(std::count(lines.begin(), lines.end(),
                   "ddp-run: the job failed; first failure: rank 0, exit code 7") == 1);
  CHECK_THAT(lines.back(), Contains("logs      : "));
}

TEST_CASE("a worker that survives SIGKILL is waited for once", "[waits]") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--shutdown-timeout=0"}, {"wait"}));
  const pid_t worker = pid_after(job, "waiting");
  // As long as nobody asks, a traced process that was killed stays where it is.
  REQUIRE(::ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) == 0);
  const auto start = std::chrono::steady_clock::now();
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(19));  // 5, not 4 times 5
  CHECK_THAT(job.err(), Contains(" could not be killed"));
  ::waitpid(worker, nullptr, __WALL);
}

TEST_CASE("a worker that waits for a console that nobody reads is not called hung", "[waits]") {
  const TempFolder tmp;
  PausedReader reader;
  auto options = stub_job(
      tmp, {"--tee=3", "--log-dir=/dev/null", "--nproc_per_node=2", "--hang-timeout=2"},
      {"@0repeat=131072:012345678901234567890123456789012345678901234567890\\n", "@1hold=USR1"});
  ChildProgram job(reader.redirect(">$pipe", options));
  CHECK_THROWS(job.wait_for("hung", 1, std::chrono::seconds(5)));
  bool released = false;
  const std::string text = reader.read_all([&](const std::string& so_far) {
    const auto held = so_far.find("holding ");
    if (released || held == std::string::npos || so_far.find('\n', held) == std::string::npos)
      return;
    ::kill(std::stoi(so_far.substr(held + 8)), SIGUSR1);
    released = true;
  });
  CHECK(job.wait_exit() == 0);
  CHECK(lines_of(text).size() == 131073);
}

TEST_CASE("a reader that is slow in the beginning gets every line, of all rounds, in order",
          "[waits]") {
  // Nobody reads until both rounds have written: 20 MiB wait in the log files, not in memory.
  const TempFolder logs;
  const TempFolder tmp;
  PausedReader reader;
  auto options = stub_job(
      tmp,
      {"-t1", "--nproc_per_node=2", "--max_restarts=1", "--log-dir=" + logs.path(),
       "--log-line-prefix-template=$rank "},
      {"#0repeat=131072:first0123456789012345678901234567890\\n",
       "#1repeat=131072:second123456789012345678901234567890\\n", "err=written\\n", "#0exit=3"});
  ChildProgram job(reader.redirect(">$pipe", options));
  job.wait_for("restart 1 of 1");
  job.wait_for("written", 3);  // of the round that failed one worker may have been stopped
  const std::string text = reader.read_all();
  CHECK(job.wait_exit() == 0);
  std::map<std::string, int> count;
  std::map<char, bool> second;
  int cut = 0;
  for (const auto& line : lines_of(text)) {
    ++count[line.substr(0, 7)];
    if (line.compare(2, 5, "secon") == 0) second[line[0]] = true;
    if (line.compare(2, 5, "first") == 0) REQUIRE_FALSE(second[line[0]]);
    // Whoever was stopped in the first round may have been in the middle of a line.
    if (line.size() != 38) REQUIRE((line.compare(2, 5, "first") == 0 && ++cut == 1));
  }
  CHECK(std::max(count["0 first"], count["1 first"]) == 131072);
  CHECK(count["0 secon"] == 131072);
  CHECK(count["1 secon"] == 131072);
}

TEST_CASE("a short run is clean under valgrind", "[waits]") {
  if (kSanitized || !has_program("valgrind"))
    return say_skipped("valgrind is not installed, or sanitizers are on");
  const TempFolder logs;
  const TempFolder tmp;
  auto options =
      stub_job(tmp,
               {"--nproc_per_node=2", "--max_restarts=1", "-t3", "--summary",
                "--log-dir=" + logs.path(), "--fold-lines=5", "--log-line-prefix-template=${time} ",
                "--log-max-size=4K", "--result-json=" + (logs / "result.json")},
               {"repeat=200:0123456789012345678901234567890\\n", "err=a\\rb", "#0@1exit=3",
                "#0wait", "daemon", "@0error-file={\"message\": \"no\"}", "exit=4"});
  options.argv.front() = DDP_RUN_DYNAMIC;
  options.argv.insert(options.argv.begin(),
                      {"valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full",
                       "--show-leak-kinds=definite,indirect",
                       "--errors-for-leak-kinds=definite,indirect", "--track-fds=no"});
  const auto job = run_to_end(options);
  INFO(job.err);
  CHECK(job.exit == 4);
  CHECK_THAT(job.err,
             !Contains("==ERROR") && !Contains("Invalid ") && !Contains("definitely lost"));
}

}  // namespace
}  // namespace ddp::test
