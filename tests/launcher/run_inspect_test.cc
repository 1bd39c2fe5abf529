// --status, --stacks and kStacksSignal, with jobs that run.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include "tests/support/catch.h"

#include "launcher/base/signal_names.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/report/inspect_socket.h"
#include "tests/launcher/nodes.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Lines = std::vector<std::string>;

// A PATH with a debugger that prints "stack of PID", after it has run the shell's line `first`.
std::string path_with_debugger(const TempFolder& tmp, const std::string& first = ":") {
  tmp.write("bin/gdb", "#!/bin/sh\n" + first + "\necho stack of $4\n", true);
  return tmp / "bin" + ":/usr/bin:/bin";
}

Finished ask(const std::string& question, const Lines& before = {}) {
  ChildOptions child;
  child.argv = before;
  child.argv.insert(child.argv.end(), {kDdpRun, question});
  return run_to_end(child);
}

// A worker that is in a collective until SIGUSR1, and then succeeds.
const Lines kInCollective{"@0beat=step=7 waiting=allreduce#3", "@1beat=step=7 collective=reduce#4",
                          "hold=USR1"};

std::string pid_of_worker(ChildProgram& node) { return std::to_string(pid_after(node, "holding")); }

void succeed(const std::string& worker) { ::kill(std::stoi(worker), SIGUSR1); }

struct TwoNodes {
  Cluster cluster{};
  std::string id = "inspected" + std::to_string(::getpid());
  Lines workers{};

  TwoNodes() {
    for (const std::string logs : {"logs0", "logs1"}) {
      const Lines options = cluster.elastic_options(
          "2", {"--rdzv-id=" + id, "--max-restarts=3", "--log-dir=" + cluster.tmp / logs});
      ChildOptions job = stub_job(cluster.tmp, options, kInCollective);
      job.set["PATH"] = path_with_debugger(cluster.tmp);
      cluster.start(job);
    }
    for (const auto& node : cluster.nodes) workers.push_back(pid_of_worker(*node));
  }
  std::string stacks_file(int node) const {
    return text_of(cluster.tmp / ("logs" + std::to_string(node)) +
                   "/latest/attempt_0/0/stacks.txt");
  }
  void finish() {
    for (const std::string& worker : workers) succeed(worker);
    CHECK(cluster.exit_codes() == std::vector<int>{0, 0});
  }
};

TEST_CASE(
    "ddp-run --stacks prints the stacks and the collective of a running job's ranks on all nodes") {
  TwoNodes job;
  const Finished asked = ask("--stacks=" + std::to_string(job.cluster.nodes[0]->pid()));
  INFO(asked.err);
  CHECK(asked.exit == 0);
  CHECK_THAT(asked.out, Contains("(local rank 0, pid " + job.workers[0] + "): ") &&
                            Contains("thread " + job.workers[0]) &&
                            Contains("stack of " + job.workers[0]) &&
                            Contains("the other 1 node of this job: on the stderr"));
  job.cluster.nodes[1]->wait_for("stack of " + job.workers[1]);
  const std::string all = asked.out + job.cluster.nodes[1]->err();
  CHECK_THAT(all, Contains("rank 0 (local rank 0, pid ") &&
                      Contains("waits for its peers in allreduce#3; last sign of life") &&
                      Contains("last collective: reduce#4; last sign of life"));
  job.finish();
  CHECK_FALSE(ever(*job.cluster.nodes[0], "stack of"));  // the asker has it
  for (int node = 0; node < 2; ++node)
    CHECK_THAT(job.stacks_file(node), Contains("stack of " + job.workers[std::size_t(node)]));
}

TEST_CASE("SIGURG to ddp-run prints the stacks of its ranks and of the other nodes' once") {
  TwoNodes job;
  const auto& nodes = job.cluster.nodes;
  nodes[1]->signal(launch::kStacksSignal);
  for (const std::size_t i : {0U, 1U}) nodes[i]->wait_for("stack of " + job.workers[i]);
  job.finish();
  for (const std::size_t i : {0U, 1U}) {
    const std::string& err = nodes[i]->err();
    CHECK(err.find("==== rank") == err.rfind("==== rank"));
  }
}

TEST_CASE(
    "ddp-run --status prints round, nodes and ranks of a job that its id, logs or a pid name") {
  TwoNodes job;
  const std::string head = "job " + job.id + ": running for ";
  const auto row = [&](std::size_t i) { return Contains(" " + job.workers[i] + " running "); };
  const Finished both = ask("--status=" + job.id);
  CHECK(both.exit == 0);
  CHECK_THAT(both.out, Contains(head) && Contains(", node 0 of 2 (") && Contains("node 1 of 2 (") &&
                           Contains("), round 0 for ") && Contains(", 3 of 3 restarts left\n") &&
                           Contains("last sign s  heartbeat\n") && row(0) && row(1) &&
                           Contains("step=7 waiting=allreduce#3\n"));
  const std::string logs = job.cluster.tmp / "logs1";
  for (const std::string& name :
       {job.workers[1], logs, logs + "/latest", std::to_string(job.cluster.nodes[1]->pid())}) {
    INFO(name);
    const Finished one = ask("--status=" + name);
    CHECK(one.exit == 0);
    CHECK_THAT(one.out, Contains(head) && row(0) && row(1));
    CHECK(one.out.find(", node 0 of 2 (") < one.out.find(", node 1 of 2 ("));
  }
  job.finish();
}

TEST_CASE("ddp-run --status lists the nodes that do not reply and prints each table once") {
  TwoNodes job;
  const Finished both = ask("--status=" + job.id);
  CHECK(both.out.find(job.workers[1]) == both.out.rfind(job.workers[1]));
  const auto& nodes = job.cluster.nodes;
  const std::string worker = job.workers[1];
  Paused agent(launch::read_stat("/proc/" + worker).parent);
  const Finished asked = ask("--status=" + std::to_string(nodes[0]->pid()));
  CHECK(asked.exit == 1);
  CHECK_THAT(asked.out,
             Contains(job.workers[0] + " running ") && Contains("no reply within 3 s from node "));
  agent.resume();
  job.finish();
}

TEST_CASE("ddp-run --status prints the tables of all jobs of one id") {
  const TempFolder tmp;
  const std::string id = "shared" + std::to_string(::getpid());
  ChildProgram one(stub_job(tmp, {"--rdzv-id=" + id}, {"hold=USR1"}));
  ChildProgram two(stub_job(tmp, {"--rdzv-id=" + id}, {"hold=USR1"}));
  const std::string workers[] = {pid_of_worker(one), pid_of_worker(two)};
  CHECK_THAT(ask("--status=" + id).out, Contains(workers[0]) && Contains(workers[1]));
  for (const std::string& worker : workers) succeed(worker);
  CHECK(one.wait_exit() == 0);
  CHECK(two.wait_exit() == 0);
}

TEST_CASE("a job that does not run, or is another user's, is refused with those that run") {
  const TempFolder tmp;
  const std::string id = "running" + std::to_string(::getpid());
  ChildProgram job(stub_job(tmp, {"--rdzv-id=" + id}, {"hold=USR1"}));
  const std::string worker = pid_of_worker(job);
  for (const std::string option : {"--status", "--stacks"}) {
    const Finished asked = ask(option + "=absent");
    CHECK(asked.exit == 2);
    CHECK(asked.out.empty());
    CHECK_THAT(asked.err, Contains("error: " + option + "=absent: no such job on this machine; ") &&
                              Contains(id + " (pid "));
    CHECK_THAT(ask(option + "=").err, Contains("error: " + option + "=: is empty"));
  }
  CHECK(ask("--status=" + id, {"/usr/bin/env", "PET_NNODES=x"}).exit == 0);
  if (::geteuid() == 0) {
    const std::string copy = "/tmp/" + id;  // where another user can run it
    fs::copy_file(kDdpRun, copy);
    const Finished foreign = run_to_end(
        {.argv = {"setpriv", "--reuid=65534", "--clear-groups", copy, "--stacks=" + worker}});
    fs::remove(copy);
    CHECK(foreign.exit == 2);
    CHECK_THAT(foreign.err, Contains("none of this user is running here; ") &&
                                Contains(" of other users, who may ask; "));
  }
  succeed(worker);
  CHECK(job.wait_exit() == 0);
  CHECK_THAT(ask("--status=" + id).err, Contains("no such job on this machine"));
}

// A job of Python code that waits for a line, which never comes.
struct WaitingPython {
  TempFolder tmp{};
  launch::Descriptor input{};

  ChildOptions job(const std::string& path) {
    REQUIRE(::mkfifo((tmp / "pipe").c_str(), 0600) == 0);
    input = launch::Descriptor(::open((tmp / "pipe").c_str(), O_RDWR | O_CLOEXEC));
    const std::string script = tmp.write("train.py", "print('up')\nwhile True: input()\n");
    return in_shell("exec \"$@\" <" + tmp / "pipe",
                    {.argv = {kDdpRun, script}, .set = {{"PATH", path}, {"TMPDIR", tmp.path()}}});
  }
};

TEST_CASE("the stacks of Python are py-spy's, of a build without --native as well") {
  WaitingPython python;
  python.tmp.write("bin/py-spy", "#!/bin/sh\n[ $2 = --native ] && exit 2\necho spied $3\n", true);
  ChildProgram job(python.job(python.tmp / "bin:" + std::getenv("PATH")));
  job.wait_for("up");
  const Finished asked = ask("--stacks=" + std::to_string(job.pid()));
  CHECK_THAT(asked.out, Contains("\nspied ") && !Contains("py-spy on the PATH"));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("stacks of Python without its frames come with a line about py-spy") {
  const bool has_frames = GENERATE(false, true);
  const std::string frames = "echo 'Traceback (most recent call first):'";
  WaitingPython python;
  ChildProgram job(python.job(path_with_debugger(python.tmp, has_frames ? frames : ":")));
  job.wait_for("up");
  const Finished asked = ask("--stacks=" + std::to_string(job.pid()));
  CHECK(asked.exit == 0);
  CHECK_THAT(asked.out, Contains("\nstack of "));
  const bool told = asked.out.find(
                        "\nno Python frames: they need py-spy on the PATH of the job's "
                        "ddp-run (pip install py-spy)\n") != std::string::npos;
  CHECK(told == !has_frames);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("stacks that a debugger does not print in a minute are named, with exit code 1",
          "[long]") {
  const TempFolder tmp;
  ChildOptions options = stub_job(tmp, {"--rdzv-id=cut", "--nproc-per-node=3"}, {"hold=USR1"});
  // The third worker never gets a debugger, as two run at a time.
  options.set["PATH"] = path_with_debugger(tmp, "echo begun; read forever <" + tmp / "pipe");
  REQUIRE(::mkfifo((tmp / "pipe").c_str(), 0600) == 0);
  ChildProgram job(options);
  job.wait_for("holding ", 3);
  const Finished asked = ask("--stacks=" + std::to_string(job.pid()));
  CHECK(asked.exit == 1);
  CHECK_THAT(asked.out, Contains("begun\n") &&
                            Contains("\nincomplete after 60 s: the stacks of ranks 0, 1, 2; "));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("a question that can have no answer is refused in a line") {
  const Finished both = run_to_end({.argv = {kDdpRun, "--status=a", "--stacks=b"}});
  CHECK(both.exit == 2);
  CHECK(both.err == "error: --status and --stacks cannot be combined; drop one\n");
  const TempFolder tmp;
  CHECK_THROWS_WITH(launch::inspect_job(tmp / "missing", "status", "a"),
                    "--status=a: no job can be asked here, as '" + tmp / "missing" +
                        "' is not writable; kill -URG PID of a ddp-run prints its stacks");
}

TEST_CASE("who asks an agent that is killed meanwhile is told") {
  const TempFolder tmp;
  ChildOptions options = stub_job(tmp, {"--rdzv-id=killed"}, {"parent", "hold=USR1"});
  options.set["PATH"] =
      path_with_debugger(tmp, "touch " + tmp / "attached" + "; read forever <" + tmp / "pipe");
  REQUIRE(::mkfifo((tmp / "pipe").c_str(), 0600) == 0);
  ChildProgram job(options);
  const pid_t agent = agent_of(job);
  ChildProgram asker({.argv = {kDdpRun, "--stacks", pid_of_worker(job)}});
  wait_for_file(tmp / "attached");
  ::kill(agent, SIGKILL);
  CHECK(asker.wait_exit() == 2);
  CHECK_THAT(asker.err(), Contains(" ended meanwhile or is stuck"));
  job.wait_all_gone();
}

}  // namespace
}  // namespace ddp::test
