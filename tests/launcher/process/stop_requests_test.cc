// How many signals are one request to stop: the count itself, then guardian and agent as processes.
#include "launcher/process/stop_requests.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/support/catch.h"

#include "launcher/base/system/proc_files.h"
#include "launcher/process/process_tree.h"
#include "tests/launcher/ddp_run.h"
#include "tests/launcher/terminal_job.h"

namespace ddp::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Clock::time_point kStart = Clock::time_point(seconds(100));

TEST_CASE("a signal that the launcher passes on is the request that came directly, however late") {
  StopRequests requests;
  CHECK(requests.add({Sender::kOther}, kStart));
  CHECK_FALSE(requests.add({Sender::kDdpRun, 1}, kStart + seconds(60)));
  CHECK(requests.add({Sender::kDdpRun, 2}, kStart + seconds(61)));
  CHECK_FALSE(requests.add({Sender::kOther}, kStart + seconds(62)));
  CHECK(requests.count() == 2);
}

TEST_CASE("a passed-on request that was lost in another one is made up for by the next") {
  StopRequests requests;
  CHECK(requests.add({Sender::kOther}, kStart));
  CHECK(requests.add({Sender::kDdpRun, 2}, kStart + milliseconds(1)));
  CHECK(requests.count() == 2);
}

TEST_CASE("what a parent passes on is the request of the group, and its next one is the second") {
  StopRequests requests;
  CHECK(requests.add({Sender::kOther}, kStart));
  CHECK_FALSE(requests.add({Sender::kParent}, kStart + milliseconds(1900)));
  requests.nothing_pending();
  CHECK(requests.add({Sender::kParent}, kStart + milliseconds(2300)));
}

TEST_CASE("a signal from somebody else after more than two seconds is a second request") {
  StopRequests requests;
  CHECK(requests.add({Sender::kParent}, kStart));
  CHECK(requests.add({Sender::kOther}, kStart + milliseconds(2100)));
}

TEST_CASE("a sender's signals in quick succession are one request, keys are not") {
  StopRequests requests;
  CHECK(requests.add({Sender::kParent}, kStart));
  requests.nothing_pending();
  CHECK_FALSE(requests.add({Sender::kParent}, kStart + milliseconds(99)));
  CHECK(requests.add({Sender::kParent}, kStart + milliseconds(100)));
  StopRequests keys;
  CHECK(keys.add({Sender::kKeyboard}, kStart));
  CHECK(keys.add({Sender::kKeyboard}, kStart + milliseconds(50)));
}

TEST_CASE("what was pending already when a request was handled is that request, however late") {
  StopRequests requests;
  CHECK(requests.add({Sender::kParent}, kStart));
  CHECK_FALSE(requests.add({Sender::kParent}, kStart + seconds(5)));  // no CPU for five seconds
  requests.nothing_pending();
  CHECK(requests.add({Sender::kParent}, kStart + seconds(6)));
}

}  // namespace
}  // namespace ddp::launch

namespace ddp::test {
namespace {

const std::vector<std::string> kSaves{"parent", "note=TERM", "note=CONT", "note=USR1", "wait"};

TEST_CASE(
    "SIGTERM to guardian and agent is one request, though the guardian gets no CPU for long") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--shutdown-timeout=60"}, kSaves));
  const pid_t agent = pid_after(job, "parent");
  job.wait_for("waiting ");
  job.signal(SIGSTOP);
  job.signal(SIGTERM);
  ::kill(agent, SIGTERM);
  job.wait_for("got SIGTERM");
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  job.signal(SIGCONT);
  job.wait_for("got SIGCONT", 2);  // after SIGTERM: the first one belongs to the stop
  ::kill(agent, SIGUSR1);
  job.wait_for("got SIGUSR1");  // it still saves
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("both signals that timeout sends are one request") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--shutdown-timeout=60"}, kSaves);
  options.argv.insert(options.argv.begin(), {"timeout", "60"});
  options.own_group = true;
  ChildProgram job(options);
  const pid_t agent = pid_after(job, "parent");
  job.wait_for("waiting ");
  job.signal(SIGTERM);
  job.wait_for("got SIGTERM");
  job.wait_for("got SIGCONT");  // timeout sends it last
  ::kill(agent, SIGUSR1);
  job.wait_for("got SIGUSR1");
  ::kill(agent, SIGKILL);
  job.wait_all_gone();
}

TEST_CASE("a parent that queues a signal is heard like one that sends it") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, {"note=TERM", "wait"}));
  job.wait_for("waiting ");
  REQUIRE(::sigqueue(job.pid(), SIGTERM, {}) == 0);
  job.wait_for("got SIGTERM");
  job.signal(SIGKILL);
}

TEST_CASE("a second Ctrl-C kills at once, however soon it comes") {
  TerminalJob job({kDdpRun, "--shutdown-timeout=60", kStub, "note=INT", "wait"});
  REQUIRE(job.shows("waiting "));
  job.type('\x03');
  REQUIRE(job.shows("got SIGINT"));
  job.type('\x03');
  CHECK(job.wait_exit() == 128 + SIGINT);
}

TEST_CASE("three Ctrl-C in a row end a job like two: the agent comes before its guardian") {
  TerminalJob job({kDdpRun, "--shutdown-timeout=60", kStub, "note=INT", "wait"});
  REQUIRE(job.shows("waiting "));
  job.type('\x03');
  REQUIRE(job.shows("got SIGINT"));
  job.type('\x03');
  job.type('\x03');
  CHECK(job.wait_exit() == 128 + SIGINT);
}

TEST_CASE("an agent that reacts to nothing is killed with its workers at the third signal") {
  const TempFolder tmp;
  ChildProgram job(
      stub_job(tmp, {"--nproc_per_node=2"}, {"ignore=TERM", "child", "daemon", "parent", "wait"}));
  const pid_t agent = pid_after(job, "parent");
  job.wait_for("waiting ", 2);
  const Paused paused(agent);  // as one that waits for a dead file server
  for (int times = 0; times < 3; ++times) {
    job.signal(SIGTERM);
    while (is_pending(job.pid(), SIGTERM)) std::this_thread::yield();  // two of these are one
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }
  CHECK(job.wait_exit() == 128 + SIGKILL);
  job.wait_all_gone();
  CHECK_THAT(job.err(), Catch::Contains("did not exit after 3 signals; it and everything"));
  CHECK(nothing_left(tmp));
}

TEST_CASE("the children of a process that cannot be killed are, and theirs as well") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t stuck = ::fork();
  if (stuck == 0) {
    launch::become_subreaper();
    if (::fork() == 0) {
      const pid_t grandchild = ::fork();
      if (grandchild != 0) [[maybe_unused]]
        const auto told = ::write(pipe[1], &grandchild, sizeof grandchild);
    } else {
      ::raise(SIGSTOP);
    }
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  REQUIRE(::read(pipe[0], &grandchild, sizeof grandchild) == sizeof grandchild);
  REQUIRE(::waitpid(stuck, nullptr, WUNTRACED) == stuck);
  launch::kill_children_of(stuck, std::chrono::seconds(30));
  CHECK(launch::read_stat(launch::process_folder(grandchild)).state == 'Z');
  CHECK(launch::read_stat(launch::process_folder(stuck)).state == 'T');
  ::kill(stuck, SIGKILL);
  ::waitpid(stuck, nullptr, 0);
  for (const int end : pipe) ::close(end);
}

}  // namespace
}  // namespace ddp::test
