
#include <algorithm>
#include <csignal>

#include "tests/support/catch.h"

#include "launcher/cluster/host_list.h"
#include "launcher/cluster/host_runner.h"
#include "launcher/cluster/hosts_plan.h"
#include "launcher/cluster/lifeline.h"
#include "launcher/cluster/ssh_command.h"
#include "tests/launcher/command_line.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;
using test::has_program;
using test::run_to_end;
using test::TempFolder;

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
  args.insert(args.end(), {"prog", "--hosts", "x"});
  return plan_hosts(parse(args).hosts.value(), "", place);
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
  CHECK(problem("gpu1:0") ==
        "--hosts=gpu1:0: '0' is not a number of workers; for GPU 0 alone write gpu1 gpus=0 in the "
        "file of --hosts=@FILE; expected HOST or HOST:SLOTS, e.g. gpu1:4");
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

TEST_CASE("hosts, and the lines of a hostfile, may name their GPUs") {
  CHECK(parse_hostfile("f", "a gpus=0,2,3\nb slots=2 gpus=GPU-1f,GPU-2e\n") ==
        std::vector<Host>{{"a", "a", 3, "0,2,3"}, {"b", "b", 2, "GPU-1f,GPU-2e"}});
  for (const char* bad : {"", ",", "0,", "0,,1", "0;1"}) {
    CHECK_THAT(problem_of([&] { parse_hostfile("f", std::string("a gpus=") + bad); }),
               Contains("f:1: gpus=") && Contains("is not a list such as 0,2,3"));
  }
  CHECK_THAT(problem_of([] { parse_hosts("a gpus=1,2"); }),
             Contains("'a gpus=1' is not a host; GPUs are"));
  CHECK(parse_hosts("me@a:0,2, 3,n[1-2]:4,5,b:2,[fd00::1]:1,0,c") ==
        std::vector<Host>{{"me@a", "a", 3, "0,2,3"},
                          {"n1", "n1", 2, "4,5"},
                          {"n2", "n2", 2, "4,5"},
                          {"b", "b", 2},
                          {"fd00::1", "fd00::1", 2, "1,0"},
                          {"c", "c", 0}});
  CHECK_THAT(problem_of([] { parse_hosts("a:0,2,"); }), Contains("empty host name"));
  for (const auto& bad : {problem_of([] { parse_hosts("a:-1,2"); }),
                          problem_of([] { parse_hostfile("f", "a gpus=-1"); })})
    CHECK_THAT(bad, Contains("'a': there is no GPU -1, and CUDA would hide all that follow"));
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
    if (!has_program(shell)) continue;
    INFO(shell);
    CHECK(run_to_end({.argv = {"/usr/bin/env", shell, "-c", line}}).out == expected);
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
  CHECK(plan_problem({"--hosts=a:2,b:0,2,3", "--nproc-per-node=2"}) ==
        "--nproc-per-node=2, but host 'b' has 3 workers for its GPUs 0,2,3: omit it, or write "
        "b slots=2 gpus=0,2,3 in the file of --hosts=@FILE");
  CHECK(plan_problem({"--hosts=b:0,2,3", "--nproc-per-node=3"}) == "(accepted)");
  CHECK(plan_problem({"--hosts=b:0,2,3", "--nproc-per-node=gpu"}) == "(accepted)");
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

}  // namespace
}  // namespace ddp::launch
