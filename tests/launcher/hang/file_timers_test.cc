#include "launcher/hang/file_timers.h"

#include <unistd.h>

#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using launch::Environment;
using launch::ExpiredTimer;
using launch::FileTimers;
using launch::timer_file;

// What FileTimerClient writes.
std::string request(pid_t pid, const std::string& scope, const std::string& at, int signal = 9) {
  return R"({"version": 1, "pid": )" + std::to_string(pid) + R"(, "scope_id": ")" + scope +
         R"(", "expiration_time": )" + at + R"(, "signal": )" + std::to_string(signal) + "}\n";
}

struct Served {
  TempFolder tmp;
  std::vector<ExpiredTimer> expired;
  FileTimers timers{tmp / "timers",
                    [this](const ExpiredTimer& timer) { expired.push_back(timer); }};

  // Until something has expired, or everything that was written has been read.
  void serve(const std::string& text, int patience_ms) {
    std::ofstream(tmp / "timers") << text;
    std::vector<pollfd> fds;
    do {
      fds.clear();
      timers.add_poll_fds(fds);
      if (::poll(fds.data(), fds.size(), patience_ms) == 0) return;
      timers.handle(fds);
    } while (expired.empty());
  }
};

TEST_CASE("timers expire that are neither released nor set again, and only those") {
  Served served;
  served.serve(request(7, "a", "99999999999") + request(7, "b", "99999999999.5") +
                   request(7, "a", "-1", 0) + request(8, "quiet", "1", 0) +
                   request(9, "far", "1e300") + request(10, "later", "5") +
                   request(10, "later", "99999999999"),
               0);
  CHECK(served.expired.empty());
  served.serve(request(7, "b", "1.5", 15), 0);
  REQUIRE(served.expired.size() == 1);
  CHECK(served.expired[0].pid == 7);
  CHECK(served.expired[0].signal == 15);
  CHECK(served.expired[0].scope == "b");
}

TEST_CASE("timers without end do not fill the memory, and those that are set still expire") {
  Served served;
  served.serve(request(1, "first", "99999999999"), 0);
  for (int part = 0; part < 30; ++part) {
    std::string many;  // fits in the pipe
    for (int i = 0; i < 400; ++i)
      many += request(7, std::to_string(part) + "." + std::to_string(i), "99999999999");
    served.serve(many, 0);
  }
  served.serve(request(8, "one too many", "1"), 0);
  CHECK(served.expired.empty());
  served.serve(request(1, "first", "1"), 0);
  REQUIRE(served.expired.size() == 1);
  CHECK(served.expired[0].scope == "first");
}

TEST_CASE("a timer expires when its time has come") {
  Served served;
  const auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(50);
  const auto seconds = std::chrono::duration<double>(soon.time_since_epoch()).count();
  served.serve(request(7, "soon", std::to_string(seconds)), 30'000);
  CHECK(served.expired.size() == 1);
  CHECK(std::chrono::system_clock::now() >= soon);
}

TEST_CASE("what no client would write into the pipe of timers is passed over") {
  for (const std::string& text :
       {std::string("\n\n{}\n[]\nnull\n\"\"\n"), std::string(5000, '['),
        std::string(R"({"pid":"1","scope_id":"a","expiration_time":1,"signal":9})") + "\n",
        std::string(R"({"pid":1,"scope_id":1,"expiration_time":1,"signal":9})") + "\n",
        std::string(R"({"pid":1,"scope_id":"a","expiration_time":null,"signal":9})") + "\n",
        request(1, "a", "1", 1000)}) {
    Served served;
    served.serve(text, 0);
    CHECK(served.expired.empty());
  }
}

TEST_CASE("the pipe of timers is the user's, or in the job's folder, and another job's never") {
  const Environment on{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};
  CHECK(timer_file({}, {"/run"}).empty());
  CHECK(timer_file({{"TORCHELASTIC_ENABLE_FILE_TIMER", "0"}}, {"/run"}).empty());
  CHECK(timer_file(on, {"", "/shm"}) == "/shm/timers");
  CHECK_THROWS_AS(timer_file(on, {""}), launch::LaunchError);
  Environment chosen = on;
  chosen["TORCHELASTIC_TIMER_FILE"] = "/mine";
  CHECK(timer_file(chosen, {"/run"}) == "/mine");
  chosen["TORCHELASTIC_RUN_ID"] = "around";
  CHECK(timer_file(chosen, {"/run"}) == "/run/timers");
}

TEST_CASE("a file that is no pipe stays, and the job is refused") {
  const TempFolder tmp;
  const auto file = tmp.write("timers", "precious");
  CHECK_THROWS_AS(FileTimers(file, {}), launch::LaunchError);
  CHECK(text_of(file) == "precious");
}

Finished run_with_timers(const std::string& script, const std::vector<std::string>& options) {
  const TempFolder tmp;
  ChildOptions child;
  child.argv = {kDdpRun};
  child.argv.insert(child.argv.end(), options.begin(), options.end());
  child.argv.insert(child.argv.end(), {"--no-python", "sh", "-c", script});
  child.set = {
      {"TMPDIR", tmp.path()}, {"OMP_NUM_THREADS", "1"}, {"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};
  auto finished = run_to_end(child);
  CHECK(nothing_left(tmp));
  return finished;
}

const std::string kExpire =
    R"(printf '{"pid":%d,"scope_id":"load data","expiration_time":1,"signal":9}\n' )";

TEST_CASE("a worker whose timer has expired is ended by it, and the report says so") {
  for (const std::string folder : {"", "/dev/null"}) {
    const auto job =
        run_with_timers("[ $RANK = 1 ] && " + kExpire + "$$ >$TORCHELASTIC_TIMER_FILE; sleep 1000",
                        {"--nproc-per-node=2", "--log-dir=" + folder});
    CHECK(job.exit == 128 + 9);
    CHECK_THAT(job.err, Contains("first failure: rank 1, killed by SIGKILL") &&
                            Contains("(SIGKILL): timer 'load data' expired"));
  }
}

TEST_CASE("an expired timer counts for restarts like any failure") {
  const auto job = run_with_timers("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; " + kExpire +
                                       "$$ >$TORCHELASTIC_TIMER_FILE; sleep 1000",
                                   {"--max-restarts=1"});
  CHECK(job.exit == 0);
}

TEST_CASE("a timer ends no process but those of the workers") {
  const std::string others = std::to_string(::getpid());
  const auto job = run_with_timers(
      "{ " + kExpire + others + "; sleep 1000 & " + kExpire +
          "$!; } >$TORCHELASTIC_TIMER_FILE; wait $!; exit $(($? - 128))",  // of the child: 9
      {});
  CHECK(job.exit == 9);
}

}  // namespace
}  // namespace ddp::test
