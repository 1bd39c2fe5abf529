// A run's output: a console that blocks or disappears costs lines, never a step.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <regex>
#include <utility>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;

/// The place's `pipe`, of the smallest size, which somebody could read and nobody does.
class UnreadPipe {
 public:
  explicit UnreadPipe(const Workspace& place) {
    const std::string path = place / "pipe";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    fd_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(fd_ >= 0);
    ::fcntl(fd_, F_SETPIPE_SZ, 4096);
  }
  ~UnreadPipe() { ::close(fd_); }
  UnreadPipe(const UnreadPipe&) = delete;
  UnreadPipe& operator=(const UnreadPipe&) = delete;

 private:
  int fd_ = -1;
};

const Words kShortRun = {"trainer_config.max_steps=80", "distributed_config.hang_timeout_s=5"};

void check_all_steps_in_file(const Workspace& place) {
  CHECK(order_of_steps(log_of(place)) == range_of(1, 80));
}

TEST_CASE("a console that nobody reads does not hold up training") {
  const Workspace place;
  const UnreadPipe pipe(place);
  const auto run = finish(in_shell("exec \"$@\" >pipe", alone(place, kShortRun)));
  CHECK(run.exit == 0);
  CHECK(run.err == "");
  check_all_steps_in_file(place);
}

TEST_CASE(
    "under ddp-run a console that nobody reads is no hang, and a late reader gets all of it") {
  const Workspace place;
  std::optional<UnreadPipe> pipe(std::in_place, place);
  ChildProgram job(in_shell(
      "exec \"$@\" >pipe", launched(place, 2, kShortRun, {"--result-json=" + (place / "result")})));
  wait_for_file(place / "result");  // all workers have ended
  check_all_steps_in_file(place);
  ChildProgram reader({.argv = {"cat", place / "pipe"}});
  CHECK(job.wait_exit(kPatience) == 0);
  CHECK_THAT(job.err(), !Contains("hang"));
  pipe.reset();
  reader.wait_all_gone();
  CHECK(order_of_steps(reader.out()) == range_of(1, 80));
}

TEST_CASE("an error is said and ends the run although nobody reads its log") {
  const Workspace place;
  const UnreadPipe pipe(place);
  Words overrides = kShortRun;
  overrides.insert(overrides.end(), {R"(trainer_config.fault_plan=["step=70 kind=nan"])",
                                     "trainer_config.bad_step_policy=stop"});
  const auto run = finish(in_shell("exec \"$@\" >pipe", alone(place, overrides)));
  CHECK(run.exit == 76);
  REQUIRE(errors_of(run.err).size() == 1);
  CHECK_THAT(errors_of(run.err)[0], Contains("Step 70: NaN or Inf"));
}

TEST_CASE("a reader that goes away, as head does, is said, and the run goes on") {
  const Workspace place;
  // It is stopped until its reader has left.
  const Words words =
      joined(kShortRun, {R"(trainer_config.fault_plan=["step=40 phase=forward kind=stop"])"});
  ChildProgram job(in_shell(
      R"({ sh -c 'echo $$ >pid; exec "$@"' sh "$@"; echo exit $? >&2; } | { head -n 2; exec <&-; : >left; })",
      alone(place, words)));
  wait_for_file(place / "left");
  const pid_t trainer_pid = std::stoi(read_bytes(place / "pid"));
  wait_until_stopped(trainer_pid);
  ::kill(trainer_pid, SIGCONT);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.out_lines().size() == 2);
  CHECK_THAT(
      job.err(),
      Contains(
          "standard output is closed (Broken pipe); the run continues without it; the log is ") &&
          Contains("main.log\nexit 0\n"));
  check_all_steps_in_file(place);
}

TEST_CASE("a finished run that is started again names words that make it continue, or start over") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=5"}));
  const auto again = succeed(alone(place, {"trainer_config.max_steps=5"}));
  static const std::regex advice(
      R"(To continue, add (trainer_config\.\S+) to the command; to start over, add (trainer_config\.\S+))");
  std::smatch words;
  REQUIRE(std::regex_search(again.out, words, advice));
  const auto further = succeed(alone(place, {"trainer_config.max_steps=5", words[1]}));
  CHECK(order_of_steps(further.out) == range_of(6, 10));
  const auto anew = succeed(alone(place, {"trainer_config.max_steps=5", words[2]}));
  CHECK(order_of_steps(anew.out) == range_of(1, 5));
}

TEST_CASE("a run that uses a part of its text says which part, and how to use all") {
  const Workspace place;
  const auto part =
      succeed(alone(place, {"trainer_config.max_steps=1", "data_config.truncate=0.5"}));
  CHECK_THAT(part.out,
             Contains(": 2463 of 4926 characters (data_config.truncate=0.5; 1 uses all), ") &&
                 Contains(" training samples, ") && Contains(" steps per epoch"));
  const Workspace whole;
  CHECK_THAT(succeed(alone(whole, {"trainer_config.max_steps=1"})).out, !Contains("truncate"));
}

}  // namespace
}  // namespace ddp::test
