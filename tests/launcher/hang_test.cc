// Hangs: what a heartbeat says, who is judged to hang, and what becomes of a real one.
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "launcher/hang/first_writes.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/hang/stack_dump.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::TempFolder;

TEST_CASE("a heartbeat is a line of words, of which timeout= is the promise") {
  const LifeSign sign = parse_heartbeat("timeout=2.5  step=12 phase=forward\nmore\n");
  CHECK(sign.promise == milliseconds(2500));
  CHECK(sign.text == "step=12 phase=forward");
  CHECK_FALSE(parse_heartbeat("").promise);
  CHECK(parse_heartbeat("a\x1b[2Jb").text == "a?[2Jb");
}

TEST_CASE("a promise that is no time is only text") {
  for (const char* word : {"timeout=", "timeout=-1", "timeout=0", "timeout=nan", "timeout=1x",
                           "timeout=inf", "timeout=1e99"}) {
    CHECK_FALSE(parse_heartbeat(word).promise);
    CHECK(parse_heartbeat(word).text == word);
  }
}

TEST_CASE("a heartbeat file tells when it was written, and keeps what it said while it is empty") {
  const TempFolder folder;
  const std::string file = folder / "heartbeat";
  const auto start = Clock::now();
  Heartbeat heartbeat(file, start);
  CHECK(heartbeat.look(Clock::now()).at == start);

  folder.write("heartbeat", "timeout=3 step=1");
  namespace fs = std::filesystem;
  fs::last_write_time(file, fs::file_time_type::clock::now() + milliseconds(1));
  const LifeSign first = heartbeat.look(Clock::now() + seconds(1));
  CHECK(first.at > start);
  CHECK(first.promise == seconds(3));

  folder.write("heartbeat", "");
  fs::last_write_time(file, fs::file_time_type::clock::now() + milliseconds(2));
  const LifeSign second = heartbeat.look(Clock::now() + seconds(2));
  CHECK(second.at >= first.at);
  CHECK(second.text == "step=1");
  CHECK(second.promise == seconds(3));
}

TEST_CASE("spares=1 in a heartbeat is an offer and no text") {
  const LifeSign sign = parse_heartbeat("step=3 spares=1 timeout=2");
  CHECK(sign.takes_spares);
  CHECK(sign.text == "step=3");
  CHECK_FALSE(parse_heartbeat("step=3 spares=2").takes_spares);
}

TEST_CASE("files that come and go beside a heartbeat cost no memory") {
  const TempFolder folder;
  FirstWrites first;
  if (first.fd() < 0) FAIL("no inotify here");
  for (int rotation = 0; rotation < 100; ++rotation) {
    first.watch(folder / "heartbeat");
    folder.write("stdout.log." + std::to_string(rotation), "");
    pollfd readable{first.fd(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 0) == 1);
    first.drain();
  }
  CHECK(first.size() == 1);  // the folder: the file is not there yet
}

TEST_CASE("a heartbeat in the same tick of the clock as the one before is seen all the same") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  Heartbeat heartbeat(folder / "heartbeat", Clock::now());
  folder.write("heartbeat", "step=0");
  const auto made = fs::last_write_time(folder / "heartbeat");
  CHECK(heartbeat.look(Clock::now()).text == "step=0");
  folder.write("heartbeat", "timeout=3 step=1");
  fs::last_write_time(folder / "heartbeat", made);
  CHECK(heartbeat.look(Clock::now()).text == "step=1");
}

TEST_CASE("what is no file any more is no heartbeat, and nothing waits for it") {
  const TempFolder folder;
  const auto start = Clock::now();
  Heartbeat heartbeat(folder / "heartbeat", start);
  std::filesystem::remove(folder / "heartbeat");
  CHECK(heartbeat.look(Clock::now()).at == start);
  REQUIRE(::mkfifo((folder / "heartbeat").c_str(), 0600) == 0);
  CHECK(heartbeat.look(Clock::now()).at == start);
}

LifeSign sign_at(Clock::time_point at, std::optional<Clock::duration> promise = {}) {
  return {at, promise, ""};
}

TEST_CASE("without a promise and without --hang-timeout nobody ever hangs") {
  const Clock::time_point t0{};
  const auto verdict = judge_hangs({}, {sign_at(t0)}, t0, t0 + seconds(100'000));
  CHECK(verdict.overdue.empty());
  CHECK_FALSE(verdict.look_again);
}

TEST_CASE("who is silent for longer than the limit is overdue") {
  const Clock::time_point t0{};
  const HangRules rules{.timeout = seconds(5)};
  const std::vector<LifeSign> signs{sign_at(t0 + seconds(2)), sign_at(t0 + seconds(1)),
                                    sign_at(t0 + seconds(4))};
  CHECK(judge_hangs(rules, signs, t0, t0 + milliseconds(5999)).overdue.empty());
  CHECK(judge_hangs(rules, signs, t0, t0 + milliseconds(5999)).look_again == t0 + seconds(6));
  CHECK(judge_hangs(rules, signs, t0, t0 + seconds(7)).overdue == std::vector<std::size_t>{0, 1});
  CHECK(judge_hangs(rules, signs, t0 + seconds(3), t0 + seconds(7)).overdue.empty());
}

TEST_CASE("when its time is half over a worker is in doubt") {
  const Clock::time_point t0{};
  const HangRules rules{.timeout = seconds(6)};
  const auto early = judge_hangs(rules, {sign_at(t0)}, t0, t0 + milliseconds(2999));
  CHECK_FALSE(early.doubtful);
  CHECK(early.look_again == t0 + seconds(3));
  const auto late = judge_hangs(rules, {sign_at(t0)}, t0, t0 + seconds(3));
  CHECK(late.doubtful);
  CHECK(late.overdue.empty());
  CHECK(late.look_again == t0 + seconds(6));
}

TEST_CASE("of the time that threads wait for a CPU the longest counts, between two readings") {
  using launch::CpuTimes;
  using launch::starved_between;
  const CpuTimes before{{1, {seconds(7), seconds(5)}}, {2, {seconds(7), seconds(90)}}};
  CpuTimes after = before;
  CHECK(starved_between(before, after, seconds(9)) == seconds(0));
  CHECK(starved_between({}, after, seconds(9)) == seconds(0));
  after[1].waited += seconds(3);
  after[2].waited += seconds(1);
  after[3].waited = seconds(50);  // another one
  CHECK(starved_between(before, after, seconds(9)) == seconds(3));
  after[2].ready = true;  // its present wait is in no number yet
  after[2].ran += seconds(2);
  CHECK(starved_between(before, after, seconds(9)) == seconds(7));
}

TEST_CASE("a promise counts more than --hang-timeout, unless promises are not heeded") {
  const Clock::time_point t0{};
  const std::vector<LifeSign> signs{sign_at(t0, seconds(60))};
  CHECK(judge_hangs({.timeout = seconds(5)}, signs, t0, t0 + seconds(50)).overdue.empty());
  CHECK_FALSE(judge_hangs({.heed_promises = false}, signs, t0, t0 + seconds(90)).look_again);
}

TEST_CASE("a worker that writes heartbeats is looked at often, its promise may become shorter") {
  const Clock::time_point t0{};
  const auto look_again = [&](const char* heartbeat) {
    LifeSign sign = parse_heartbeat(heartbeat);
    sign.at = t0;
    return judge_hangs({}, {sign}, t0, t0 + seconds(10)).look_again;
  };
  CHECK(look_again("timeout=60") == t0 + milliseconds(10'200));
  CHECK(look_again("step=1") == t0 + milliseconds(10'200));
  CHECK(look_again("timeout=10.1") == t0 + milliseconds(10'100));
  CHECK_FALSE(look_again(""));
}

TEST_CASE("a heartbeat tells how far its worker is, in words that are agreed on") {
  const auto progress =
      parse_heartbeat("loss=1 phase=backward step=12 waiting=all_reduce collective=all_reduce#7")
          .progress;
  CHECK(progress.step == 12);
  CHECK(progress.phase == "backward");
  CHECK(progress.waiting == "all_reduce");
  CHECK(progress.collective == "all_reduce#7");
  for (const char* word : {"step=", "step=1x", "step=x", "steps=1", "step=99999999999999999999"}) {
    CHECK_FALSE(parse_heartbeat(word).progress.step);
    CHECK(parse_heartbeat(word).text == word);
  }
}

Suspect overdue(const char* heartbeat, int silent = 10, char state = 'S') {
  Suspect suspect{parse_heartbeat(heartbeat), true, state};
  suspect.sign.at = Clock::time_point(seconds(100 - silent));
  return suspect;
}
Suspect in_time(const char* heartbeat, char state = 'S') {
  Suspect suspect = overdue(heartbeat, 1, state);
  suspect.overdue = false;
  return suspect;
}

struct Hang {
  const char* why;
  std::vector<Suspect> suspects;
  std::vector<std::size_t> hung;  // the cause first
};

TEST_CASE("of those that hang together the cause is named first") {
  const Hang hang = GENERATE(values<Hang>({
      {"nobody has said anything: the longest silence", {overdue("", 10), overdue("", 20)}, {1, 0}},
      {"a stopped process", {overdue("step=3", 20), overdue("step=4", 10, 'T')}, {1, 0}},
      {"a traced process", {overdue("step=3", 20), overdue("step=4", 10, 't')}, {1, 0}},
      {"a process that the kernel holds", {overdue("step=3"), overdue("step=4", 1, 'D')}, {1, 0}},
      {"a stopped one that is not overdue yet",
       {overdue("step=3"), in_time("step=4", 'T')},
       {1, 0}},
      {"a moment in the kernel is nothing", {overdue("step=3"), in_time("step=4", 'D')}, {0}},
      {"the lowest step",
       {overdue("step=4", 20), overdue("step=3 waiting=all_reduce", 10)},
       {1, 0}},
      {"no step at all is the lowest", {overdue("step=0", 20), overdue("phase=start", 10)}, {1, 0}},
      {"who does not wait, at equal steps",
       {overdue("step=4 waiting=all_reduce", 20), overdue("step=4 phase=data", 10)},
       {1, 0}},
      {"the earlier collective, when all wait",
       {overdue("step=4 waiting=all_reduce collective=all_reduce#9", 20),
        overdue("step=4 waiting=broadcast collective=broadcast#8", 10)},
       {1, 0}},
      {"who is waited for has broken no promise yet",
       {overdue("step=4 waiting=all_reduce"), in_time("step=4 phase=save"), in_time("step=5")},
       {1, 0}},
      {"who waits itself is not waited for",
       {overdue("step=4 waiting=all_reduce"), in_time("step=4 waiting=all_reduce")},
       {0}},
      {"who has never written a heartbeat is not judged by them",
       {overdue("step=4 waiting=all_reduce"), in_time("")},
       {0}},
      {"who is waited for has promised to be longer: nobody",
       {overdue("step=4 waiting=all_reduce timeout=3"), in_time("step=4 phase=save timeout=60")},
       {}},
      {"one that has come to wait only now excuses those that have waited for it",
       {overdue("step=4 waiting=all_reduce timeout=3"),
        in_time("step=4 waiting=all_reduce timeout=3")},
       {}},
      {"nor does the promise of a stopped process",
       {overdue("step=4 waiting=all_reduce timeout=3"),
        in_time("step=4 phase=save timeout=60", 'T')},
       {1, 0}},
      {"who does not wait has only itself to blame",
       {overdue("step=4 phase=data"), in_time("step=3 phase=save")},
       {0}},
  }));
  INFO(hang.why);
  CHECK(find_hung(hang.suspects) == hang.hung);
}

}  // namespace
}  // namespace ddp::launch

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("a worker that breaks its promise is reported with its state, and the group restarted") {
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--nproc_per_node=2", "--max-restarts=1"},
               {"#0@1beat=timeout=0.2 step=7 phase=forward", "#0@1kill-self=STOP", "#0wait"});
  options.set["PATH"] = tmp.path();  // no debugger
  const Finished job = run_to_end(options);
  CHECK(job.exit == 0);
  CHECK_THAT(job.err, Contains("rank 1 (local rank 1, pid ") && Contains("hung: silent for") &&
                          Contains("state T (stopped") &&
                          Contains("last heartbeat: step=7 phase=forward") &&
                          Contains("restart 1 of 1"));
}

// All that this process starts shares a CPU with a process that never sleeps.
class CrowdedCpu {
 public:
  CrowdedCpu() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    spinner_ = ::fork();
    if (spinner_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::getppid();
  }
  ~CrowdedCpu() {
    ::kill(spinner_, SIGKILL);
    ::waitpid(spinner_, nullptr, 0);
    ::sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_{};
  pid_t spinner_ = 0;
};

TEST_CASE("a worker that hardly gets a CPU is not taken for hung") {
  const TempFolder tmp;
  const CrowdedCpu crowded;
  const Finished job = run_to_end(stub_job(tmp, {}, {"beat=timeout=0.6 step=1", "work=30"}));
  CHECK(job.exit == 0);
  CHECK_THAT(job.err, !Contains("hung"));
}

TEST_CASE("of workers that hang together the report and the result name the one to blame") {
  const TempFolder tmp;
  auto options = stub_job(
      tmp, {"--nproc_per_node=2", "--result-json=" + tmp / "result"},
      {"@0hold=USR1", "@0beat=timeout=0.2 step=8 waiting=all_reduce collective=all_reduce#5",
       "@1beat=step=8 phase=data collective=all_reduce#4", "@1print=beaten", "wait"});
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  job.wait_for("beaten");
  ::kill(std::stoi(job.wait_for("holding ").substr(8)), SIGUSR1);
  CHECK(job.wait_exit() == 124);
  CHECK_THAT(job.err(),
             Contains("first failure: rank 1, hung") && Contains("others are waiting for it") &&
                 Contains("heartbeat : step=8 phase=data collective=all_reduce#4") &&
                 Contains("also      : rank 0 (pid ") && Contains(": hung, waiting in all_reduce"));
  const auto cause = nlohmann::json::parse(text_of(tmp / "result"))["failures"][0];
  CHECK(cause["rank"] == 1);
  CHECK(cause["step"] == 8);
  CHECK(cause["phase"] == "data");
  CHECK(cause["waiting"].is_null());
  CHECK(cause["collective"] == "all_reduce#4");
}

TEST_CASE("a promise that has become shorter counts, though nothing tells of that write") {
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--result-json=" + tmp / "result"},
               {"beat=timeout=60 step=1", "hold=USR1", "beat=timeout=0.5 step=2", "wait"});
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  ::kill(std::stoi(job.wait_for("holding ").substr(8)), SIGUSR1);
  CHECK(job.wait_exit() == 124);
  CHECK(nlohmann::json::parse(text_of(tmp / "result"))["failures"][0]["step"] == 2);
}

std::string stacks_in(const std::string& text, const std::string& before) {
  const auto at = text.find(before) + before.size();
  return text.substr(at, text.find('\n', at) - at);
}

TEST_CASE("a hang that is final exits with 124 and keeps what was written about it") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"wait"});
  options.set["PATH"] = tmp.path();
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  CHECK_THAT(job.err, Contains("first failure: rank 0, hung") && Contains("stacks    : "));
  const std::string file = stacks_in(job.err, "stacks    : ");
  CHECK_THAT(text_of(file), Contains("state ") && Contains("thread "));
}

TEST_CASE("stacks of a hang outlive the restart, their file is named, and nothing else stays") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--hang-timeout=0.2", "--max-restarts=2"},
                          {"#0wait", "#1exit=3", "print=third round"});
  options.set["PATH"] = tmp.path();
  const Finished job = run_to_end(options);
  CHECK(job.exit == 0);
  const std::string file = stacks_in(job.err, "; stacks: ");
  CHECK_THAT(text_of(file), Contains("thread "));
  const auto run = std::filesystem::path(file).parent_path().parent_path().parent_path();
  CHECK(run.parent_path() == tmp.path());
  for (const auto& entry : std::filesystem::directory_iterator(run))
    CHECK(entry.path().filename() == "attempt_0");
}

TEST_CASE("output is a sign of life, and --hang-timeout=0 takes no promise seriously") {
  const TempFolder tmp;
  const Finished job = run_to_end(
      stub_job(tmp, {"--hang-timeout=0", "--tee=1"}, {"beat=timeout=0.01 x", "out=alive\\n"}));
  CHECK(job.exit == 0);
  CHECK(job.err.find("hang") == std::string::npos);
}

TEST_CASE("a debugger that can be found writes the stacks") {
  const TempFolder tmp;
  tmp.write("gdb", "#!/bin/sh\necho \"#0 main of $2\"\n", true);
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"print=x", "wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  const std::string file = stacks_in(job.err, "stacks    : ");
  CHECK_THAT(text_of(file), Contains("#0 main of "));
}

TEST_CASE("a debugger that fails, as under Yama, is followed by SIGABRT") {
  const TempFolder tmp;
  tmp.write("gdb", "#!/bin/sh\necho ptrace: Operation not permitted.\nexit 1\n", true);
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"note=ABRT", "wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  ChildProgram job(options);
  job.wait_for("got SIGABRT");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("gdb's exit code says whether it could attach") {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const auto tool = launch::stack_tool(child, "/usr/bin:/bin");
  const bool has_gdb = tool && tool->argv.front() == "gdb";
  if (has_gdb) {
    ChildOptions gdb;
    gdb.argv = tool->argv;
    const Finished attached = run_to_end(gdb);
    CHECK(attached.exit == 0);
    CHECK_THAT(attached.out, Contains("#0 "));
    REQUIRE(::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) ==
            0);  // one tracer is all there may be
    CHECK(run_to_end(gdb).exit != 0);
  } else {
    test::say_skipped("no gdb here");
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("no more than two debuggers work at once") {
  const TempFolder tmp;
  tmp.write("gdb",
            "#!/bin/sh\ncd " + tmp.path() +
                "; mkdir at.$$; ls -d at.* | wc -l >>log; sleep 0.2; rmdir at.$$\n",
            true);
  auto options = stub_job(tmp, {"--nproc_per_node=4", "--hang-timeout=0.2"}, {"wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  CHECK(run_to_end(options).exit == 124);
  const auto counts = lines_of(text_of(tmp / "log"));
  CHECK(counts.size() == 4);
  for (const auto& count : counts) CHECK(std::stoi(count) <= 2);
}

}  // namespace
}  // namespace ddp::test
