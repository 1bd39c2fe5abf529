// --warm-spares: standby workers, started before they are needed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "tests/support/catch.h"

#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

const Lines kSpares{"--warm-spares", "--nproc_per_node=2", "--max_restarts=2"};

// A named pipe through which spares tell their pids, and which they hold open while they wait.
class SparePipe {
 public:
  SparePipe() {
    if (::mkfifo(path().c_str(), 0600) == 0) fd_ = ::open(path().c_str(), O_RDONLY | O_NONBLOCK);
  }
  ~SparePipe() { ::close(fd_); }
  SparePipe(const SparePipe&) = delete;
  SparePipe& operator=(const SparePipe&) = delete;

  std::string path() const { return folder_ / "pipe"; }
  /// The next one that is ready.
  pid_t next() {
    while (text_.find('\n') == std::string::npos) {
      char part[100];
      if (!becomes(POLLIN)) throw std::runtime_error("no spare has told its pid");
      const auto got = ::read(fd_, part, sizeof part);
      text_.append(part, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    const pid_t pid = std::stoi(text_);
    text_.erase(0, text_.find('\n') + 1);
    return pid;
  }
  bool all_gone() const { return becomes(0); }

 private:
  bool becomes(short event) const {
    pollfd end{fd_, event, 0};
    return ::poll(&end, 1, static_cast<int>(ChildProgram::kBound.count())) == 1;
  }

  TempFolder folder_;
  std::string text_;
  int fd_ = -1;
};

// Round 0 offers spares and waits, the next ones do `after` and end.
Lines offering(const Lines& first, const Lines& after) {
  Lines actions = first;
  actions.insert(actions.end(), {"#0beat=step=1 spares=1", "#0wait"});
  actions.insert(actions.end(), after.begin(), after.end());
  return actions;
}

void kill_a_worker(ChildProgram& job, int waiting = 2) {
  ::kill(pid_after(job, "waiting", waiting), SIGKILL);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("after a crash the standby workers become workers, with the new round's environment") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(stub_job(
      tmp, kSpares,
      offering({"spare=" + pipe.path(), "env=MASTER_PORT"},
               {"env=RANK", "env=LOCAL_RANK", "env=DDP_SPARE_FD", "env=TORCHELASTIC_RESTART_COUNT",
                "@1env=DDP_LAST_FAILURE", "err=from a spare\\n", "fds"})));
  pipe.next();
  pipe.next();
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone();
  INFO(job.out() << job.err());
  CHECK(count(job.out(), "was a spare") == 2);
  for (const char* line : {"RANK=0\n", "RANK=1\n", "LOCAL_RANK=1\n", "\"cause\":\"SIGKILL\""})
    CHECK_THAT(job.out(), Contains(line));
  CHECK(count(job.out(), "TORCHELASTIC_RESTART_COUNT=1\n") == 2);
  CHECK(count(job.out(), "DDP_SPARE_FD=(unset)\n") == 2);
  CHECK(count(job.out(), "fds 0 1 2\n") == 2);
  CHECK(count(job.err(), "from a spare") == 2);
  CHECK_THAT(job.err(), Contains("standby workers: 2 processes, ") && Contains(" MB\n"));
  CHECK(nothing_left(tmp));
}

TEST_CASE("a standby worker's output is dropped until it is a worker") {
  const TempFolder tmp;
  SparePipe pipe;
  Lines options = kSpares;
  options.emplace_back("--tee=3");
  ChildProgram job(
      stub_job(tmp, options, offering({"print=early", "spare=" + pipe.path()}, {"print=late"})));
  pipe.next();
  pipe.next();
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  INFO(job.out() << job.err());
  CHECK(count(job.out(), "early") == 2);  // of the first round's workers
  CHECK_THAT(job.out(), Contains("[default0]:late") && Contains("[default1]:late"));
}

TEST_CASE("each round that may be restarted has its own standby workers") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(stub_job(
      tmp, {"--warm-spares", "--max_restarts=2"},
      {"spare=" + pipe.path(), "beat=step=1 spares=1", "#2print=last", "#2exit=0", "wait"}));
  for (int round = 1; round <= 2; ++round) {
    pipe.next();
    kill_a_worker(job, round);
  }
  CHECK(job.wait_exit() == 0);
  CHECK(count(job.out(), "was a spare") == 2);
  CHECK(count(job.err(), "standby workers: 1 process, ") == 1);
}

TEST_CASE("a program that does not support standby workers is never started early") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, kSpares, {"spare", "beat=step=1", "#1exit=0", "wait"}));
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  CHECK(count(job.out(), "was a spare") == 0);
  CHECK_THAT(job.err(), !Contains("spares:"));
}

TEST_CASE("a standby worker that does not take part is replaced by a fresh worker") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(
      stub_job(tmp, kSpares,
               {"spare-tell=" + pipe.path(), "#0beat=spares=1", "env=RANK", "#1exit=0", "wait"}));
  pipe.next();
  pipe.next();
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  CHECK(count(job.out(), "RANK=0\n") == 2);
  CHECK(count(job.out(), "RANK=") == 4);
  CHECK(pipe.all_gone());
}

TEST_CASE("standby workers that die are replaced twice and do not fail the job") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, kSpares, offering({"spare-exit=7"}, {"print=again"})));
  for (const char* rank : {"0", "1"}) {
    job.wait_for(std::string("the standby worker of local rank ") + rank +
                 " exited 3 times before it was needed (exit code 7)");
  }
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  INFO(job.out() << job.err());
  CHECK(count(job.out(), "again") == 2);
  CHECK_THAT(job.err(), Contains("restart 1 of 2") && !Contains("restart 2 of 2"));
}

TEST_CASE("a ready standby worker that is killed is replaced by another one") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(stub_job(tmp, kSpares, offering({"spare=" + pipe.path()}, {"print=again"})));
  pipe.next();
  ::kill(pipe.next(), SIGKILL);
  pipe.next();
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  CHECK(count(job.out(), "was a spare") == 2);
}

TEST_CASE("standby workers end with ddp-run, its agent and their job") {
  const TempFolder tmp;
  SparePipe pipe;
  const std::string end = GENERATE("SIGKILL", "agent", "job");
  ChildProgram job(
      stub_job(tmp, kSpares, {"parent", "spare=" + pipe.path(), "#0beat=spares=1", "hold=USR1"}));
  const pid_t agent = agent_of(job);
  pipe.next();
  pipe.next();
  job.wait_for("holding ", 2);
  if (end == "SIGKILL") job.signal(SIGKILL);
  if (end == "agent") ::kill(agent, SIGKILL);
  if (end == "job") job.signal(SIGUSR1);
  job.wait_all_gone();
  CHECK(pipe.all_gone());
  CHECK(nothing_left(tmp));
}

TEST_CASE(
    "a signal that ends the job kills standby workers at once, however long the workers take") {
  const TempFolder tmp;
  SparePipe pipe;
  Lines options = kSpares;
  options.emplace_back("--shutdown-timeout=600");  // longer than this test waits
  ChildProgram job(stub_job(tmp, options, offering({"ignore=TERM", "spare=" + pipe.path()}, {})));
  pipe.next();
  pipe.next();
  job.wait_for("waiting ", 2);
  job.signal(SIGTERM);
  CHECK(pipe.all_gone());
  job.wait_for("grace period");
  job.signal(SIGKILL);
  job.wait_all_gone();
}

TEST_CASE("forwarded signals do not reach standby workers") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(
      stub_job(tmp, kSpares, offering({"spare=" + pipe.path(), "#0note=USR1"}, {"print=again"})));
  pipe.next();
  pipe.next();
  job.wait_for("waiting ", 2);
  job.signal(SIGUSR1);  // would end a process that does not expect it
  job.wait_for("got SIGUSR1", 2);
  kill_a_worker(job);
  CHECK(job.wait_exit() == 0);
  CHECK(count(job.out(), "was a spare") == 2);
}

TEST_CASE("a standby worker runs at low priority until it is a worker, if that can be undone") {
  const TempFolder tmp;
  SparePipe pipe;
  ChildProgram job(stub_job(tmp, {"--warm-spares", "--max_restarts=1"},
                            offering({"spare=" + pipe.path()}, {"nice"})));
  const int own = ::getpriority(PRIO_PROCESS, 0);
  const int early = ::getpriority(PRIO_PROCESS, static_cast<id_t>(pipe.next()));
  CHECK((early == own || early == std::min(own + 10, 19)));
  kill_a_worker(job, 1);
  CHECK(job.wait_exit() == 0);
  CHECK_THAT(job.out(), Contains("was a spare\nnice " + std::to_string(own) + "\n"));
}

TEST_CASE("without restarts --warm-spares is reported to have no effect") {
  const TempFolder tmp;
  const auto job = run_to_end(stub_job(tmp, {"--warm-spares"}, {"beat=spares=1"}));
  CHECK(job.exit == 0);
  CHECK_THAT(job.err, Contains("--warm-spares has no effect without --max-restarts"));
}

}  // namespace
}  // namespace ddp::test
