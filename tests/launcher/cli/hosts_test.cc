#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cluster/host_list.h"
#include "launcher/cluster/host_runner.h"
#include "launcher/cluster/hosts_plan.h"
#include "launcher/cluster/lifeline.h"
#include "launcher/cluster/ssh_command.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/skip.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;
using test::ChildOptions;
using test::ChildProgram;
using test::kDdpRun;
using test::kStub;
using test::run_to_end;
using test::TempFolder;

std::string problem_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const LaunchError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "(accepted)";
}

HostsPlace some_place() {
  return {
      .folder = "/work dir",
      .ddp_run = "/opt/ddp-run",
      .version = "1.2",
      .run_id = "abcd",
      .token = "5ec7e7",
      .port = 20001,
      .environment = {
          {"DDP_SSH", "/bin/rsh"}, {"PATH", "/bin"}, {"NCCL_DEBUG", "INFO"}, {"NCCL_X", "it's"}}};
}

HostsPlan plan_of(std::vector<const char*> args, const HostsPlace& place = some_place()) {
  args.insert(args.begin(), "ddp-run");
  args.insert(args.end(), {"prog", "--hosts", "x"});
  const auto config = parse_launch_args(static_cast<int>(args.size()), args.data(), {});
  return plan_hosts(config.hosts.value(), "", place);
}

std::string plan_problem(const std::vector<const char*>& args) {
  return problem_of([&] { plan_of(args); });
}

// What ddp-run on each host is given, without the words before.
Words arguments_of(const HostsPlan& plan) {
  Words all;
  for (const auto& host : plan.hosts) {
    const std::string& line = host.command.argv.back();
    all.push_back(line.substr(line.find(" -- ", line.find("/opt/ddp-run")) + 4));
  }
  return all;
}

TEST_CASE("hosts have names, users and slots") {
  using Hosts = std::vector<Host>;
  CHECK(parse_hosts("a") == Hosts{{"a", "a", 0}});
  CHECK(parse_hosts("a,b:4") == Hosts{{"a", "a", 0}, {"b", "b", 4}});
  CHECK(parse_hosts(" a , me@b:2") == Hosts{{"a", "a", 0}, {"me@b", "b", 2}});
  CHECK(parse_hosts("n[1-2,05]:8,x") ==
        Hosts{{"n1", "n1", 8}, {"n2", "n2", 8}, {"n05", "n05", 8}, {"x", "x", 0}});
  CHECK(
      parse_hosts("[fe80::1%eth0]:4,::1,me@[fd00::2]") ==
      Hosts{{"fe80::1%eth0", "fe80::1%eth0", 4}, {"::1", "::1", 0}, {"me@fd00::2", "fd00::2", 0}});
  CHECK(parse_hosts("10.0.0.1:1") == Hosts{{"10.0.0.1", "10.0.0.1", 1}});
}

TEST_CASE("a host that ssh could take for something else is refused") {
  const auto problem = [](const char* text) { return problem_of([&] { parse_hosts(text); }); };
  CHECK(problem("-oProxyCommand=x") ==
        "--hosts=-oProxyCommand=x: '-oProxyCommand=x' is not a host name; expected HOST or "
        "HOST:SLOTS, e.g. gpu1:4");
  for (const char* text : {"a b", "a;b", "$(x)", "a\tb", "-a", "me@-a", "me@", ":4"}) {
    CHECK_THAT(problem(text), Contains("not a host name"));
  }
  CHECK_THAT(problem("-l@a"), Contains("not a user name"));
  for (const char* text : {"a,,b", ",", "a,"})
    CHECK_THAT(problem(text), Contains("empty host name"));
  for (const char* text : {"a:0", "a:x", "a:", "a:-1", "[::1]:0"}) {
    CHECK_THAT(problem(text), Contains("not a number of workers"));
  }
  CHECK_THAT(problem("[::1]4"), Contains("wrong text"));
  CHECK_THAT(problem("a[1"), Contains("'[' without ']'"));
}

TEST_CASE("a hostfile is read as mpirun and DeepSpeed read theirs") {
  CHECK(parse_hostfile("f", "# cluster\na slots=4\n\nb:2 # fast\nc slots=1 max_slots=9\nd\n") ==
        std::vector<Host>{{"a", "a", 4}, {"b", "b", 2}, {"c", "c", 1}, {"d", "d", 0}});
  const auto problem = [](const char* text) {
    return problem_of([&] { parse_hostfile("f", text); });
  };
  CHECK(problem("# none\n") == "--hosts=@f: names no host");
  CHECK(problem("a\nb slots=x\n") ==
        "f:2: 'x' is not a number of workers; expected HOST or HOST:SLOTS, e.g. gpu1:4");
  CHECK_THAT(problem("a gpu=4\n"), Contains("f:1: 'gpu=4' is not known here"));
}

TEST_CASE("the files of PBS and SGE are hostfiles") {
  using Hosts = std::vector<Host>;
  CHECK(parse_hostfile("f", "a\na\nb\na\nb\n") == Hosts{{"a", "a", 3}, {"b", "b", 2}});
  CHECK(parse_hostfile("f", "a\nb\n") == Hosts{{"a", "a", 0}, {"b", "b", 0}});
  CHECK(parse_hostfile("f", "a.org 4 all.q@a.org UNDEFINED\nb.org 2 all.q@b.org <NULL>\n") ==
        Hosts{{"a.org", "a.org", 4}, {"b.org", "b.org", 2}});
  CHECK(parse_hostfile("f", "a 4 all.q@a <NULL>\nb 2 all.q@b <NULL>\na 3 gpu.q@a <NULL>\n") ==
        Hosts{{"a", "a", 7}, {"b", "b", 2}});
}

TEST_CASE("the lines of a hostfile may name the GPUs of a host") {
  CHECK(parse_hostfile("f", "a gpus=0,2,3\nb slots=2 gpus=GPU-1f,GPU-2e\n") ==
        std::vector<Host>{{"a", "a", 3, "0,2,3"}, {"b", "b", 2, "GPU-1f,GPU-2e"}});
  for (const char* bad : {"", ",", "0,", "0,,1", "0;1"}) {
    CHECK_THAT(problem_of([&] { parse_hostfile("f", std::string("a gpus=") + bad); }),
               Contains("f:1: gpus=") && Contains("is not a list such as 0,2,3"));
  }
  // In --hosts a comma separates hosts.
  CHECK_THAT(problem_of([] { parse_hosts("a gpus=1,2"); }),
             Contains("'a gpus=1' is not a host; GPUs are"));
  CHECK(parse_hosts("a,17") == std::vector<Host>{{"a", "a", 0}, {"17", "17", 0}});
}

TEST_CASE("a word arrives as it was, whatever login shell reads it") {
  CHECK(quoted_for_any_shell("--lr=0.1") == "--lr=0.1");
  CHECK(quoted_for_any_shell("") == "''");
  CHECK(quoted_for_any_shell("it's") == "'it'\\''s'");
  CHECK(quoted_for_any_shell("a\\b") == "'a'\\\\'b'");
  const Words hard{"",         " ",   "a b", "it's",      "\"q\"",   "$HOME",  "`id`",
                   "a\\b\\\\", "'",   "*",   "a;b",       "~",       "--x=\t", "{a,b}",
                   "#c",       "(x)", "!!",  "new\nline", "\xc3\xa4"};
  std::string line = "printf '%s|'";
  std::string expected;
  for (const auto& word : hard) {
    line.append(" ").append(quoted_for_any_shell(word));
    expected += word + "|";
  }
  int shells = 0;
  for (const char* shell : {"sh", "bash", "dash", "zsh", "fish", "ksh"}) {
    ChildOptions which;
    which.argv = {"/bin/sh", "-c", std::string("command -v ") + shell};
    if (run_to_end(which).exit != 0) continue;
    INFO(shell);
    ChildOptions child;
    child.argv = {"/usr/bin/env", shell, "-c", line};
    CHECK(run_to_end(child).out == expected);
    ++shells;
  }
  CHECK(shells >= 2);
}

TEST_CASE("each host gets its part of the job") {
  const auto plan = plan_of({"--hosts=a,me@b:4", "--max-restarts=2", "--summary"});
  CHECK(plan.min_nodes == 2);
  REQUIRE(plan.hosts.size() == 2);
  CHECK(plan.hosts[1].label == "b");
  CHECK(plan.hosts[1].command.argv[0] == "/bin/rsh");
  CHECK(plan.hosts[1].command.argv[1] == "me@b");
  CHECK_THAT(plan.hosts[0].command.argv[2],
             Contains(" ddp-run '/work dir' /opt/ddp-run -- --max-restarts=2"));
  CHECK(arguments_of(plan) ==
        Words{"--max-restarts=2 --summary --lifeline=1.2 --nnodes=2 --node-rank=0 "
              "--master-addr=a --master-port=20001 --rdzv-id=abcd --rdzv-token-file=- -- prog "
              "--hosts x",
              "--max-restarts=2 --summary --lifeline=1.2 --nnodes=2 --node-rank=1 "
              "--master-addr=a --master-port=20001 --rdzv-id=abcd --rdzv-token-file=- "
              "--nproc-per-node=4 -- prog --hosts x"});
}

TEST_CASE("an elastic job on hosts meets at the first one") {
  const auto plan = plan_of({"--hosts=a,b,c", "--nnodes=2:3", "--rdzv-backend=c10d"});
  CHECK(plan.min_nodes == 2);
  CHECK(arguments_of(plan)[2] ==
        "--rdzv-backend=c10d --lifeline=1.2 --nnodes=2:3 --rdzv-endpoint=a:20001 --rdzv-id=abcd "
        "--rdzv-token-file=- -- prog --hosts x");
  CHECK_THAT(arguments_of(plan_of({"--hosts=::1,::1", "--rdzv-backend=c10d"}))[0],
             Contains("'--rdzv-endpoint=[::1]:20001'"));
}

TEST_CASE("the hosts of a job get a token that no command line shows") {
  CHECK(plan_of({"--hosts=a,b"}).token == "5ec7e7");
  CHECK(plan_of({"--hosts=a"}).token.empty());
  CHECK(plan_of({"--hosts=a,b", "--rdzv-token-file=t"}).token.empty());
  for (const std::string& line : arguments_of(plan_of({"--hosts=a,b"})))
    CHECK(line.find("5ec7e7") == std::string::npos);
  CHECK(HostsPlace::of_this_process().token.size() == 64);
  CHECK(HostsPlace::of_this_process().token != HostsPlace::of_this_process().token);
}

TEST_CASE("addresses, ports and ids that are given are kept") {
  CHECK(arguments_of(plan_of({"--hosts=a,b", "--rdzv-backend=c10d", "--master-addr=ib1"}))[1] ==
        "--master-addr=ib1 --rdzv-backend=c10d --lifeline=1.2 --nnodes=2 --master-port=20001 "
        "--rdzv-id=abcd --rdzv-token-file=- -- prog --hosts x");
  CHECK(arguments_of(plan_of({"--hosts=a,b", "--rdzv-endpoint=ib1:99", "--rdzv-id=mine"}))[0] ==
        "--rdzv-endpoint=ib1:99 --rdzv-id=mine --lifeline=1.2 --nnodes=2 --node-rank=0 "
        "--rdzv-token-file=- -- prog --hosts x");
  CHECK_THAT(arguments_of(plan_of({"--hosts=a,b", "--master-port=99"}))[1],
             Contains("--master-port=99") && Contains("--master-addr=a ") && !Contains("20001"));
  CHECK(arguments_of(plan_of({"--hosts=a:2"})) ==
        Words{"--lifeline=1.2 --rdzv-id=abcd --nproc-per-node=2 -- prog --hosts x"});
}

TEST_CASE("files with results are the first host's, a host named twice has two labels") {
  const auto plan = plan_of({"--hosts=a,a", "--result-json=r", "--events=e", "--log-dir=l"});
  CHECK_THAT(arguments_of(plan)[0], Contains("--result-json=r --events=e"));
  CHECK_THAT(arguments_of(plan)[1],
             !Contains("result-json") && !Contains("events") && Contains("--log-dir=l"));
  CHECK(plan.hosts[1].label == "a/1");
}

TEST_CASE("variables are passed on when they are named") {
  const auto plan = plan_of({"--hosts=a", "--export=NCCL_*,X=1 2,NOT_SET"});
  CHECK_THAT(plan.hosts[0].command.argv[2],
             Contains("/opt/ddp-run NCCL_DEBUG=INFO 'NCCL_X=it'\\''s' 'X=1 2' -- --lifeline"));
  for (const char* bad : {"--export=-x", "--export==1", "--export=A,,B", "--export=a b"}) {
    CHECK_THAT(plan_problem({"--hosts=a", bad}), Contains("expected NAME"));
  }
}

TEST_CASE("what cannot go with hosts is refused in one line") {
  CHECK_THAT(plan_problem({"--hosts=a", "--node-rank=1"}), Contains("--node-rank is for one node"));
  CHECK_THAT(plan_problem({"--hosts=a", "--standalone"}), Contains("--standalone is for one node"));
  CHECK_THAT(plan_problem({"--hosts=a", "--scheduler=slurm"}), Contains("cannot be combined"));
  CHECK_THAT(plan_problem({"--hosts="}), Contains("name at least one host"));
  CHECK(plan_problem({"--hosts=@"}) == "--hosts=@: names no file; write --hosts=@FILE");
  CHECK(plan_problem({"--hosts=a,b", "--nnodes=3"}) ==
        "--nnodes=3 with 2 hosts: omit it, or use --rdzv-backend=c10d for MIN:MAX");
  CHECK_THAT(plan_problem({"--hosts=a", "--nnodes=2:3", "--rdzv-backend=c10d"}),
             Contains("too few hosts"));
  CHECK(plan_problem({"--hosts=localhost,b"}) ==
        "the first host is 'localhost', where b cannot reach it: name it as the others know it, or "
        "give --master-addr");
}

TEST_CASE("the exit code of a job on hosts is its own") {
  CHECK(exit_code_of_hosts({0, 0}, 2) == 0);
  CHECK(exit_code_of_hosts({7, 1}, 2) == 7);
  CHECK(exit_code_of_hosts({0, 75}, 2) == 75);
  CHECK(exit_code_of_hosts({255, 0, 0}, 2) == 0);  // one host was lost, and not needed
  CHECK(exit_code_of_hosts({255, 0, 3}, 2) == 255);
}

TEST_CASE("the lifeline takes whole lines that name signals") {
  std::string text = "SIGTERM\nnonsense\nSIGKILL\nUSR1\nSIGI";
  CHECK(signals_in(text) == std::vector<int>{SIGTERM, SIGUSR1});
  CHECK(text == "SIGI");
  text.assign(1000, 'x');
  CHECK(signals_in(text).empty());
  CHECK(text.empty());
}

// ---- with an ssh that runs the command here ---------------------------------------------------

/// Fails for the host "gone" as ssh does; elsewhere the command runs in a process that outlives
/// ssh.
constexpr const char* kFakeSsh = R"(#!/bin/sh
host=$1
[ "$host" = gone ] && { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
HOST_NAME=$host
export HOST_NAME
/bin/sh -c "$2"
exit $?
)";

ChildOptions with_ssh(const std::string& ssh, ChildOptions job) {
  job.set["DDP_SSH"] = ssh;
  return job;
}

struct FakeHosts {
  TempFolder tmp;
  std::string ssh = tmp.write("ssh", kFakeSsh);
  FakeHosts() { ::chmod(ssh.c_str(), 0755); }

  ChildOptions job(Words options, const Words& actions) const {
    options.emplace_back("--master-addr=127.0.0.1");
    return with_ssh(ssh, test::stub_job(tmp, options, actions));
  }
};

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// Checks the processes in lines like "a: waiting 12" and "a: descendant 13".
bool none_lives(const Words& lines) {
  return std::none_of(lines.begin(), lines.end(), [](const std::string& line) {
    return ::kill(std::stoi(line.substr(line.rfind(' ') + 1)), 0) == 0;
  });
}

TEST_CASE("a job on hosts runs with ranks over all of them, its lines say where") {
  const FakeHosts hosts;
  const auto run =
      run_to_end(hosts.job({"--hosts=a:2,b:1"}, {"env=HOST_NAME", "env=RANK", "env=WORLD_SIZE"}));
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(count_of(run.out, "a: HOST_NAME=a\n") == 2);
  CHECK(count_of(run.out, "b: HOST_NAME=b\n") == 1);
  CHECK(count_of(run.out, "b: RANK=2\n") == 1);
  CHECK(count_of(run.out, "WORLD_SIZE=3\n") == 3);
  CHECK(test::nothing_left(hosts.tmp));
}

TEST_CASE("a hostfile chooses the workers' GPUs") {
  const FakeHosts hosts;
  const std::string file = hosts.tmp.write("hosts", "a gpus=1,3\nb gpus=2\n");
  const auto run = run_to_end(hosts.job({"--hosts=@" + file}, {"env=CUDA_VISIBLE_DEVICES"}));
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(count_of(run.out, "a: CUDA_VISIBLE_DEVICES=1,3\n") == 2);
  CHECK(count_of(run.out, "b: CUDA_VISIBLE_DEVICES=2\n") == 1);
}

TEST_CASE("a PBS job's script starts one job on its hosts, on its own without ssh") {
  const FakeHosts hosts;
  ChildOptions job = hosts.job({"--scheduler=pbs"}, {"env=HOST_NAME", "env=RANK"});
  job.set["PBS_NODEFILE"] = hosts.tmp.write("nodes", "a\na\nb\n");
  const auto run = run_to_end(job);
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(count_of(run.out, "a: HOST_NAME=(unset)\n") == 2);
  CHECK(count_of(run.out, "b: HOST_NAME=b\n") == 1);
  CHECK(count_of(run.out, "b: RANK=2\n") == 1);
  CHECK(test::nothing_left(hosts.tmp));
}

TEST_CASE("the hosts' job gives its exit code and the cause, and stops everywhere") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,b"}, {"@1exit=7", "@0wait"}));
  INFO(run.err);
  CHECK(run.exit == 7);
  CHECK_THAT(run.err, Contains("b: ") && Contains("exitcode  : 7"));
  CHECK(count_of(run.err, "Root Cause") == 1);
  CHECK_THAT(run.err, Contains("a: ddp-run: the job failed; first failure: rank 1 on "));
}

TEST_CASE("a signal to the starting ddp-run reaches the workers of all hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"note=USR1", "trap-exit=5", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1", 2);
  job.signal(SIGTERM);
  job.wait_for("got SIGTERM", 2);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  job.wait_all_gone();
}

TEST_CASE("after a signal its exit code counts, though a host hears first that another leaves") {
  const TempFolder tmp;
  // b ends with 1 and is reaped before a ends.
  constexpr const char* kSsh = R"(#!/bin/sh
[ $1 = b ] && echo $$ >{0}
echo begun; read signal
[ $1 = b ] && exit 1
while kill -0 $(cat {0}); do :; done
exit 143
)";
  const std::string ssh = tmp.write("ssh", fmt::format(kSsh, tmp / "b"));
  ::chmod(ssh.c_str(), 0755);
  ChildProgram job(with_ssh(ssh, test::stub_job(tmp, {"--hosts=a,b"}, {})));
  job.wait_for("begun", 2);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 143);
}

TEST_CASE("when the starting ddp-run is killed nothing is left on the hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"daemon", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGKILL);
  CHECK(job.wait_exit() == -SIGKILL);
  // The hosts' processes have no pipe to this test.
  const auto bound = std::chrono::steady_clock::now() + test::kSoon;
  const auto over = [&] { return test::nothing_left(hosts.tmp) && none_lives(job.out_lines()); };
  while (!over() && std::chrono::steady_clock::now() < bound)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(over());
}

TEST_CASE("a second request kills workers that ignore the first, on all hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"ignore=INT", "ignore=TERM", "note=USR1", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGINT);
  // Once this has its reply, the first request has been counted everywhere.
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // nearer ones count as doubles
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  job.wait_all_gone();
}

TEST_CASE("a host that cannot be reached ends the job, named") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,gone"}, {"wait"}));
  INFO(run.err);
  CHECK(run.exit == 255);
  CHECK_THAT(run.err, Contains("gone: ssh: connect to host gone") &&
                          Contains("error: gone: ssh ended with 255") &&
                          Contains("try: ssh gone true"));
}

TEST_CASE("an ssh that ends without a word, or is killed, is named") {
  const FakeHosts hosts;
  const auto silent =
      run_to_end(with_ssh("/bin/false", test::stub_job(hosts.tmp, {"--hosts=me@a"}, {})));
  CHECK(silent.exit == 1);
  CHECK(
      silent.err ==
      "error: a: ssh ended with 1 before ddp-run on the host said anything; try: ssh me@a true\n");
  const std::string dies = hosts.tmp.write("dies", "#!/bin/sh\nkill -9 $$\n");
  ::chmod(dies.c_str(), 0755);
  const auto killed = run_to_end(with_ssh(dies, test::stub_job(hosts.tmp, {"--hosts=a,a"}, {})));
  CHECK(killed.exit == 128 + SIGKILL);
  CHECK_THAT(killed.err, Contains("error: a/0: ssh was killed by SIGKILL; try: ssh a true"));
}

TEST_CASE("an elastic job goes on without a host that it does not need") {
  const FakeHosts hosts;
  const auto child = hosts.job(
      {"--hosts=a,gone", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=1"},
      {"print=done"});
  const auto run = run_to_end(child);
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.out, Contains("a: done"));
}

TEST_CASE("a host without ddp-run, without the folder or with another version says so") {
  const FakeHosts hosts;
  const auto line = [](const RemoteCommand& command) {
    ChildOptions child;
    child.argv = {"/bin/sh", "-c", remote_command_line(command)};
    child.set = {{"PATH", "/nowhere"}};
    return run_to_end(child);
  };
  const auto missing = line({"/", "/no/ddp-run", {}, {}});
  CHECK(missing.exit == 127);
  CHECK(missing.err ==
        "error: ddp-run is not installed on this host: neither at /no/ddp-run nor on PATH\n");
  const auto folder = line({"/no such", "/no/ddp-run", {}, {}});
  CHECK(folder.exit == 1);
  CHECK_THAT(folder.err, Contains("there is no folder /no such on this host"));
  const auto version = line({"/", kDdpRun, {}, {"--lifeline=0.0.1", "--", kStub}});
  CHECK(version.exit == 2);
  CHECK_THAT(version.err, Contains("was started by ddp-run 0.0.1; install the same version"));
  const auto export_it = line({"/", kDdpRun, {"X=a  'b'"}, {"--", kStub, "env=X"}});
  CHECK(export_it.out == "X=a  'b'\n");
}

TEST_CASE("a dry run prints the command of each host") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,b:2", "--dry-run"}, {}));
  CHECK(run.exit == 0);
  const auto lines = test::lines_of(run.out);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[1], Contains(hosts.ssh + " b 'exec /bin/sh -c "));
}

}  // namespace
}  // namespace ddp::launch
