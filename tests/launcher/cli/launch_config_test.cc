#include "launcher/cli/launch_config.h"

#include <algorithm>
#include <csignal>

#include "tests/launcher/command_line.h"

namespace ddp::launch {
namespace {

TEST_CASE("options may be written with _ or -, with = or a space") {
  CHECK(parse({"--nproc_per_node=4", "x"}).nproc_per_node == "4");
  CHECK(parse({"--nproc-per-node=4", "x"}).nproc_per_node == "4");
  CHECK(parse({"--nproc_per_node", "gpu", "x"}).nproc_per_node == "gpu");
  CHECK(parse({"--nproc-per_node", "cpu", "x"}).nproc_per_node == "cpu");
  CHECK(parse({"--max_restarts", "3", "x"}).restarts.max_restarts == 3);
}

TEST_CASE("the time in uninterruptible sleep is torchrun's variable, and a number") {
  const char* const name = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  const auto limit = [&](const char* value) {
    return parse({"x"}, {{name, value}}).hangs.uninterruptible;
  };
  CHECK(limit("2.5") == std::chrono::milliseconds(2500));
  for (const char* off : {"", "0", "-1"}) CHECK_FALSE(limit(off));
  CHECK_FALSE(parse({"x"}).hangs.uninterruptible);
  for (const char* bad : {"5s", "nan", "1e300"}) {
    CHECK_THROWS_WITH(limit(bad), Catch::StartsWith(std::string(name) + "=" + bad +
                                                    ": must be a number of seconds"));
  }
}

TEST_CASE("the last of two equal options counts") {
  CHECK(parse({"--max-restarts=1", "--max_restarts=2", "x"}).restarts.max_restarts == 2);
}

TEST_CASE("a name may be cut short while no other of torchrun's begins so") {
  CHECK(parse({"--max-r", "2", "x"}).restarts.max_restarts == 2);
  CHECK(parse({"--max_r=2", "x"}).restarts.max_restarts == 2);
  CHECK(parse({"--nproc-p", "2", "x"}).nproc_per_node == "2");
  CHECK(parse({"--stan", "x"}).standalone);
  CHECK(parse({"--re=3", "x"}).logs.redirects.all == 3);  // not --report-lines
  CHECK(complaint({"--master", "x"}) ==
        "option '--master' is ambiguous: --master-addr or --master-port");
  CHECK(complaint({"--nproc", "true"}) ==  // as torchrun, which calls it ambiguous
        "option '--nproc' is too short; write --nproc-per-node");
  CHECK(complaint({"--=", "x"}) == "unknown option '--'; see ddp-run --help");
}

TEST_CASE("short options may stand together") {
  const auto config = parse({"-mt3", "-r=1", "x"});
  CHECK(config.module);
  CHECK(config.logs.tee.all == 3);
  CHECK(config.logs.redirects.all == 1);
}

TEST_CASE("an option is no value of another, a number or a text with spaces is") {
  CHECK(complaint({"--role", "--standalone", "x"}) ==
        "--role needs a value, but the option '--standalone' follows; write "
        "--role=--standalone if it is the value");
  CHECK(parse({"--role", "-5", "x"}).role == "-5");
  CHECK(parse({"--role", "- a", "x"}).role == "- a");
  CHECK(parse({"--role=--standalone", "x"}).role == "--standalone");
}

TEST_CASE("sizes of log files have units") {
  const auto logs = parse({"-r3", "--log-max-size=64M:0", "x"}).logs;
  CHECK(logs.rotation.max_bytes == 64 << 20);
  CHECK(logs.rotation.keep == 0);
  CHECK(parse({"--log-max-size=4096", "x"}).logs.rotation.max_bytes == 4096);
  CHECK(parse({"--log-max-size=4096", "x"}).logs.rotation.keep == 3);
  for (const char* bad : {"", "1", "4095", "-1", "1.5G", "M", "9999999999", "1 M", "5m",
                          "64M:", "64M:x", "64M:-1", "64M:1001", ":3", "64M:3:3"}) {
    INFO(bad);
    CHECK_THAT(complaint({"--log-max-size", bad, "x"}),
               Catch::Contains("must be SIZE or SIZE:KEEP, where SIZE is 0 or at least 4K"));
  }
}

TEST_CASE("everything after the program is left alone") {
  const auto config =
      parse({"--standalone", "prog", "--standalone", "-m", "--", "--nproc_per_node=9", ""});
  CHECK(config.program == "prog");
  CHECK(config.program_args ==
        std::vector<std::string>{"--standalone", "-m", "--", "--nproc_per_node=9", ""});
  CHECK(config.nproc_per_node == "1");
}

TEST_CASE("two dashes end the options") {
  CHECK(parse({"--", "--odd-name"}).program == "--odd-name");
}

TEST_CASE("a module is named by -m or --module") {
  CHECK(parse({"-m", "a.b", "c"}).module);
  CHECK(parse({"--module", "a.b"}).program == "a.b");
}

TEST_CASE("defaults are torchrun's") {
  const auto config = parse({"x"});
  CHECK(config.nproc_per_node == "1");
  CHECK(config.restarts.max_restarts == 0);
  CHECK(config.role == "default");
  CHECK(config.shutdown_timeout == std::chrono::seconds(30));
  CHECK(config.stop_signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  CHECK(config.master_addr == "127.0.0.1");
  CHECK(config.master_port == 0);
}

TEST_CASE("signals are given by name") {
  CHECK(parse({"--signals-to-handle=SIGUSR1,TERM", "x"}).stop_signals ==
        std::vector<int>{SIGUSR1, SIGTERM});
}

TEST_CASE("streams are chosen for all ranks or for some, with any number of digits") {
  const auto all = parse({"-r", "3", "-t1", "x"}).logs;
  CHECK(all.redirects.of(7) == 3);
  CHECK(all.tee.of(0) == 1);
  const auto some = parse({"--tee=0:1,12:3", "x"}).logs;
  CHECK(some.tee.of(12) == 3);
  CHECK(some.tee.of(1) == 0);
  CHECK(parse({"--local-ranks-filter=0,10", "x"}).logs.console_ranks == std::set<int>{0, 10});
  CHECK(parse({"-t3", "--duplicate-stdout-filters=a,,b,c", "x"}).logs.stdout_filters ==
        std::vector<std::string>{"a,b", "c"});
}

TEST_CASE("an option that is not given is taken from its PET_ variable") {
  const Environment env{{"PET_MAX_RESTARTS", "3"},
                        {"PET_NPROC_PER_NODE", "4"},
                        {"PET_STANDALONE", "1"},
                        {"PET_MODULE", "0"}};
  const auto config = parse({"--max-restarts=1", "x"}, env);
  CHECK(config.restarts.max_restarts == 1);
  CHECK(config.nproc_per_node == "4");
  CHECK(config.standalone);
  CHECK_FALSE(config.module);
  CHECK(config.hints.empty());
  for (const char* on : {"1", "2", "true", "YES", "on"}) {
    CHECK(parse({"x"}, {{"PET_STANDALONE", on}}).standalone);
  }
  for (const char* off : {"0", "false", "No", "off", ""}) {
    CHECK_FALSE(parse({"x"}, {{"PET_STANDALONE", off}}).standalone);
  }
}

TEST_CASE("a PET_ variable that is no option is named, with the one that was meant") {
  const auto config =
      parse({"x"}, {{"PET_NPROC_PERNODE", "2"}, {"PET_ZZZZZZZZZ", "1"}, {"PETS", "1"}});
  CHECK(config.hints ==
        std::vector<std::string>{
            "PET_NPROC_PERNODE is ignored: no such option; did you mean PET_NPROC_PER_NODE?",
            "PET_ZZZZZZZZZ is ignored: no such option"});
  CHECK_THROWS_WITH(parse({"x"}, {{"PET_STANDALONE", "maybe"}}),
                    "PET_STANDALONE=maybe: must be 1 or 0");
  CHECK_THROWS_WITH(parse({"x"}, {{"PET_MAX_RESTARTS", "x"}}),
                    "--max-restarts=x: must be an integer from 0 to 2147483647 "
                    "(set by PET_MAX_RESTARTS)");
  CHECK_THROWS_WITH(parse({"x"}, {{"PET_NPROC_PER_NODE", "x"}}),
                    Catch::EndsWith("gpu, cpu or auto (set by PET_NPROC_PER_NODE)"));
  CHECK_THROWS_WITH(parse({"--max-restarts=y", "x"}, {{"PET_MAX_RESTARTS", "x"}}),
                    Catch::EndsWith("from 0 to 2147483647"));
  CHECK_THROWS_WITH(parse({"x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x"}}),
                    Catch::EndsWith("(set by TORCH_ELASTIC_SHUTDOWN_TIMEOUT)"));
  CHECK(parse({"x"}, {{"PET_DRY_RUN", "1"}}).hints ==
        std::vector<std::string>{"PET_DRY_RUN is ignored; give --dry-run on the command line"});
}

TEST_CASE("options that need another one are reported as without effect, but not with --hosts") {
  const auto hints = [](const char* option, const char* other = "--max-restarts=0") {
    return parse({option, other, "x"}, {}).hints;
  };
  using Lines = std::vector<std::string>;
  CHECK(hints("--export=A") == Lines{"--export has no effect without --hosts"});
  CHECK(hints("--healthy-after=60") ==
        Lines{"--healthy-after has no effect without --max-restarts"});
  CHECK(hints("--log-max-size=1M") ==
        Lines{"--log-max-size has no effect without --tee or --redirects"});
  CHECK(hints("--log-max-size=1M", "--tee=0:1").empty());
  CHECK(hints("--log-max-size=1M", "--redirects=3").empty());
  CHECK(hints("--log-max-size=0").empty());
  CHECK(hints("--healthy-after=60", "--max-restarts=1").empty());
  CHECK(parse({"--export=A", "--log-max-size=1M", "--hosts=a,b", "x"}, {}).hints.empty());
}

TEST_CASE("blanks around numbers and in lists do not matter, as in torchrun") {
  const auto config = parse({"--nproc-per-node= 2\n", "--max-restarts= 3 ", "--shutdown-timeout= 4",
                             "--nnodes= 1", "--signals-to-handle=SIGTERM, SIGINT",
                             "--local-ranks-filter= 0, 1", "--local-addr=", "x"});
  CHECK(config.nproc_per_node == "2");
  CHECK(config.restarts.max_restarts == 3);
  CHECK(config.shutdown_timeout == std::chrono::seconds(4));
  CHECK(config.stop_signals == std::vector<int>{SIGTERM, SIGINT});
  CHECK(config.logs.console_ranks == std::set<int>{0, 1});
  CHECK(config.master_addr == "127.0.0.1");
}

TEST_CASE("torchrun's older variables count less than the option and its PET_ variable") {
  const Environment env{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}};
  CHECK(parse({"x"}, env).shutdown_timeout == std::chrono::seconds(7));
  CHECK(parse({"--shutdown-timeout=8", "x"}, env).shutdown_timeout == std::chrono::seconds(8));
}

TEST_CASE("wrong usage is one line that names the option and the remedy") {
  CHECK(complaint({"--nproc_pernode=2", "x"}) ==
        "unknown option '--nproc_pernode'; did you mean --nproc-per-node?");
  CHECK(complaint({"--max-retsarts", "2", "x"}) ==
        "unknown option '--max-retsarts'; did you mean --max-restarts?");
  CHECK(complaint({"--qqqqqqqqq", "x"}) == "unknown option '--qqqqqqqqq'; see ddp-run --help");
  CHECK(complaint({"-z", "x"}) == "unknown option '-z'; see ddp-run --help");
  CHECK(complaint({"--max-restarts=-1", "x"}) ==
        "--max-restarts=-1: must be an integer from 0 to 2147483647");
  CHECK(complaint({"--max-restarts=1e9", "x"}) ==
        "--max-restarts=1e9: must be an integer from 0 to 2147483647");
  CHECK(complaint({"--max-restarts=", "x"}) ==
        "--max-restarts=: is empty (an unset variable?); must be an integer from 0 to 2147483647");
  CHECK(
      complaint({"--nproc_per_node=", "x"}) ==
      "--nproc_per_node=: is empty (an unset variable?); must be a number from 1 to 4096, gpu, cpu "
      "or auto");
  CHECK(complaint({"--nnodes=", "x"}) ==
        "--nnodes=: is empty (an unset variable?); must be N or MIN:MAX, with 1 <= MIN <= MAX");
  CHECK_THAT(complaint({"--rdzv-backend=", "x"}), Catch::Contains("is empty (an unset variable?)"));
  CHECK(complaint({"--master-port=70000", "x"}) ==
        "--master-port=70000: must be an integer from 0 to 65535");
  CHECK(complaint({"--monitor-interval=0", "x"}) == "(accepted)");
  CHECK(complaint({"--monitor-interval=-1", "x"}).starts_with("--monitor-interval=-1: must be"));
  CHECK(complaint({"--hang-timeout=0.0004", "x"}) ==
        "--hang-timeout=0.0004: must be 0 (never) or at least 0.1 s");
  CHECK(complaint({"--shutdown-timeout=nan", "x"}) ==
        "--shutdown-timeout=nan: must be a number of seconds, e.g. 0, 2.5 or 600");
  CHECK(complaint({"--start-method=vfork", "x"}) ==
        "--start-method=vfork: must be one of spawn, fork, forkserver");
  CHECK(complaint({"--rdzv-backend=foo", "x"}) ==
        "--rdzv-backend=foo: must be one of static, c10d, etcd, etcd-v2");
  CHECK(complaint({"--rdzv-conf=a", "x"}) == "--rdzv-conf=a: 'a' is not KEY=VALUE");
  for (const char* backend : {"--standalone", "--rdzv-backend=static", "--rdzv-backend=c10d"}) {
    CHECK(complaint({backend, "--rdzv-conf=read_timeout=x", "x"}) ==
          "--rdzv-conf=read_timeout=x: must be a whole number of seconds, at least 1");
    CHECK(complaint({backend, "--rdzv-conf=store_type=file,timeout=9,mine=1", "x"}) ==
          "(accepted)");
  }
  CHECK(complaint({"--nnodes=0", "x"}) == "--nnodes=0: must be N or MIN:MAX, with 1 <= MIN <= MAX");
  CHECK(complaint({"--nnodes=2:1", "x"}) ==
        "--nnodes=2:1: must be N or MIN:MAX, with 1 <= MIN <= MAX");
  CHECK(complaint({"--node-rank=1", "x"}) ==
        "--node-rank=1: a single node has rank 0; omit the option");
  CHECK(complaint({"--standalone", "--node-rank=1", "x"}) == "(accepted)");
  CHECK(complaint({"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=tcp://a:29400", "x"}) ==
        "--rdzv-endpoint=tcp://a:29400: must be HOST or HOST:PORT");
  for (const char* flag : {"is_host=TRUE", "is_host=False", "is_host=Y", "is_host=no"}) {
    CHECK(complaint({"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=a", "--rdzv-conf", flag,
                     "x"}) == "(accepted)");
  }
  CHECK(complaint({"--standalone=yes", "x"}) ==
        "--standalone takes no value, got 'yes'; write --standalone alone");
  CHECK(complaint({"--signals-to-handle=SIGKILL", "x"})
            .find("'SIGKILL' is not a signal that can be handled") != std::string::npos);
  CHECK(complaint({"--nproc-per-node"}) ==
        "--nproc-per-node needs a value; write --nproc-per-node=N|gpu|cpu|auto");
  CHECK(complaint({"--nproc_per_node", "train.py", "--lr", "1"}) ==
        "--nproc-per-node needs a value, but the program 'train.py' follows; write "
        "--nproc-per-node=N|gpu|cpu|auto");
  CHECK(parse({"--role", "a.py", "x"}).role == "a.py");
  CHECK(complaint({"--logs-specs=mine", "x"}) ==
        "--logs-specs=mine: there are no log plug-ins here; omit it, and choose with --log-dir, "
        "--tee and --redirects");
  CHECK(complaint({"-m", "--no-python", "x"}) == "-m and --no-python cannot be combined; drop one");
  CHECK_THAT(complaint({"--tee=4", "x"}), Catch::StartsWith("--tee=4: must be 0, 1 (stdout)"));
  CHECK_THAT(complaint({"-r", "0:1,1", "x"}), Catch::StartsWith("--redirects=0:1,1: must be"));
  CHECK_THAT(complaint({"--local-ranks-filter=0,a", "x"}),
             Catch::Contains("must be a list of local ranks"));
  CHECK_THAT(complaint({"--nproc-per-node=2147483647", "x"}), Catch::Contains("from 1 to 4096"));
  CHECK_THAT(complaint({"--events=", "x"}), Catch::StartsWith("--events=: is empty"));
  CHECK_THAT(complaint({"--result-json=", "x"}), Catch::Contains("is empty; give a file"));
  const std::vector<const char*> file_store{"--nnodes=2", "--rdzv-backend=c10d",
                                            "--rdzv-endpoint=/shared/file",
                                            "--rdzv-conf=store_type=file", "x"};
  CHECK_THAT(complaint(file_store),
             Catch::StartsWith("--rdzv-conf=store_type=file: nodes meet over TCP only") &&
                 Catch::Contains("--rdzv-endpoint=HOST[:PORT]"));
  CHECK(complaint({"--standalone"}).find("no program given") == 0);
  CHECK(complaint({""}).find("no program given") == 0);
}

TEST_CASE("one option has the restart policy and the exit codes it does not hold for") {
  const auto rules = [](const char* text) {
    return parse({"--restart-policy", text, "x"}).restarts;
  };
  CHECK(parse({"x"}).restarts.policy == RestartPolicy::kOnFailure);
  CHECK(rules("never").policy == RestartPolicy::kNever);
  const auto all = rules("on-crash, final=2, final=64,retry=75");
  CHECK(all.policy == RestartPolicy::kOnCrash);
  CHECK(all.final_codes == std::set<int>{2, 64});
  CHECK(all.retry_codes == std::set<int>{75});
  CHECK(rules("retry=255").policy == RestartPolicy::kOnFailure);
  CHECK(rules("retry=255").retry_codes == std::set<int>{255});
  const auto problem = [](const std::string& text) {
    const std::string option = "--restart-policy=" + text;
    return complaint({option.c_str(), "x"}).substr(option.size() + 2);
  };
  const std::string form =
      "must be on-failure, on-crash or never, then final=CODE or retry=CODE, e.g. "
      "on-crash,final=2";
  CHECK(problem("sometimes") == form);
  CHECK(problem("") == "is empty (an unset variable?); " + form);
  CHECK(problem("2,64") == form);
  for (const char* entry : {"never", "64", "last=64", ""}) {
    CHECK(problem("final=2," + std::string(entry)) ==
          "'" + std::string(entry) +
              "' must be final=CODE or retry=CODE, e.g. on-crash,final=2,final=64");
  }
  for (const char* entry : {"final=0", "final=256", "final=", "retry=x", "retry=-1"})
    CHECK(problem(entry) == "'" + std::string(entry) + "' must name an exit code from 1 to 255");
  CHECK(problem("final=2,retry=2") == "exit code 2 is both final and retry; drop one");
}

TEST_CASE("events go to a file or to the console") {
  CHECK(parse({"--events=x.jsonl", "x"}).event_log == "x.jsonl");
  CHECK_FALSE(parse({"--events=x.jsonl", "x"}).events_on_console);
  const auto both = parse({"--events=x.jsonl", "--event-log-handler=console", "x"});
  CHECK(both.event_log == "x.jsonl");
  CHECK(both.events_on_console);
  CHECK(parse({"--events=console", "x"}).event_log.empty());
  CHECK(parse({"--events=console", "x"}).events_on_console);
}

TEST_CASE("no sequence of short arguments ends in anything but a config or one line") {
  const char* pieces[] = {"",    "-",  "--", "---",       "=", "-m", "--help", "--nproc-per-node",
                          "--=", "-=", "x",  "--m\xff=\n"};
  for (const char* a : pieces) {
    for (const char* b : pieces) {
      for (const char* c : pieces) {
        const std::string text = complaint({a, b, c});
        CHECK(text.find("terminate") == std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace ddp::launch
