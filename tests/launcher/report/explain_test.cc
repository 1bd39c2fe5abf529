// --explain: real runs, and what can be said of them afterwards.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

#include "tests/launcher/nodes.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

Finished explain(const std::string& path, const std::string& folder = "") {
  return run_to_end({.argv = {kDdpRun, "--explain=" + path}, .folder = folder});
}

Finished explain_after(const Words& options, const Words& actions) {
  const TempFolder tmp;
  Words all{"--log-dir=" + tmp.path() + "/logs"};
  all.insert(all.end(), options.begin(), options.end());
  run_to_end(stub_job(tmp, all, actions));
  return explain(tmp.path() + "/logs");
}

TEST_CASE("a past failure is explained: who, where, when, the last lines, what to do") {
  const auto said = explain_after(
      {"--nproc_per_node=2"},
      {"@1err=RuntimeError: CUDA out of memory. Tried to allocate\\n", "@1exit=7", "wait"});
  CHECK(said.exit == 0);
  CHECK(said.err.empty());
  CHECK_THAT(said.out, StartsWith("run ") && Contains(": failed after ") &&
                           Contains("exit code 7, attempt 0\n") &&
                           Contains("first failure: rank 1, exit code 7\n") &&
                           Contains("  host      : ") && Contains("  time      : 20"));
  CHECK_THAT(said.out,
             Contains("  rank      : 1 (local_rank: 1) of 2\n") &&
                 Contains("  stderr    : RuntimeError: CUDA out of memory.") &&
                 Contains("  stopped   : 1 other worker\n") &&
                 Contains("What to do:\n  the GPU's memory is full: reduce the batch size"));
}

constexpr const char* kTraceback =
    "Traceback (most recent call last):\\n  File \"train.py\", line 12, in <module>\\n    main()\\n"
    "  File \"/venv/lib/python3.11/site-packages/torch/nn/linear.py\", line 7, in forward\\n"
    "    ^^^^\\nValueError: bad shape\\n";

TEST_CASE("after an exception: which line of the user's, where the output is, what to try") {
  const auto said = explain_after({"--nproc_per_node=2", "--redirects=3"},
                                  {std::string("@1err=") + kTraceback, "@1exit=1", "wait"});
  CHECK_THAT(said.out,
             Contains("What to do:\n  look at train.py, line 12, which led to ValueError: bad "
                      "shape\n  full output: ") &&
                 Contains("/attempt_0/1/stderr.log\n  try --nproc_per_node=1: if ") &&
                 EndsWith("\n"));
}

TEST_CASE("an exception under torch's prefix is found, as torch's excepthook writes it") {
  const auto said = explain_after(
      {"--nproc_per_node=2"}, {"@1err=[rank1]: Traceback (most recent call last):\\n[rank1]:   "
                               "File \"train.py\", line 12, in "
                               "<module>\\n[rank1]:     main()\\n[rank1]: ValueError: bad shape\\n",
                               "@1exit=1", "wait"});
  CHECK_THAT(said.out,
             Contains("look at train.py, line 12, which led to ValueError: bad shape\n") &&
                 !Contains("sys.exit"));
}

TEST_CASE("words of a known failure that was survived are not the cause") {
  for (const Words& before :
       {Words{"err=ModuleNotFoundError: No module named 'flash_attn': using the slow path\\n"},
        Words{"out=no checkpoint yet (FileNotFoundError), starting from scratch\\n"}}) {
    Words actions = before;
    actions.insert(actions.end(), {std::string("err=") + kTraceback, "exit=1"});
    const auto said = explain_after({"--tee=3"}, actions);
    CHECK_THAT(said.out, Contains("What to do:\n  look at train.py, line 12, which led to ") &&
                             !Contains("PYTHON_EXEC") && !Contains("paths are relative"));
  }
}

TEST_CASE("a known failure is answered with a remedy and the line that led there") {
  const std::string missing =
      "err=  File \"train.py\", line 3, in <module>\\nFileNotFoundError: 'corpus'\\n";
  CHECK_THAT(
      explain_after({}, {missing, "exit=1"}).out,
      Contains("What to do:\n  paths are relative to ") &&
          EndsWith("\n  look at train.py, line 3, which led to FileNotFoundError: 'corpus'\n"));
  CHECK_THAT(explain_after({}, {missing, "kill-self=KILL"}).out, !Contains("look at"));
}

TEST_CASE("after an unknown exit code the advice is how to find out more") {
  const auto said = explain_after({}, {"exit=3"});
  CHECK_THAT(said.out,
             EndsWith("What to do:\n  exit code 3 is the program's own, with no output: look for "
                      "sys.exit(3) or exit(3)\n  to keep every rank's output, rerun "
                      "with --log-dir=logs --tee=3\n"));
  CHECK_THAT(explain_after({"--redirects=3"}, {"exit=3"}).out,
             Contains(", with no output: ") && Contains("  its log files are empty: /") &&
                 EndsWith("/attempt_0/0\n"));
  CHECK_THAT(explain_after({}, {"err=giving up\\n", "exit=3"}).out,
             Contains("exit code 3 is the program's own, see its last lines"));
  CHECK_THAT(explain_after({}, {"kill-self=USR1"}).out,
             Contains("What to do:\n  its last lines show what it was doing when it was killed\n"));
}

TEST_CASE("earlier attempts are listed, and the last one's error file is read") {
  const auto said = explain_after({"--nproc_per_node=2", "--max-restarts=1"},
                                  {"#0@0exit=3", "#1@1error-file", "#1@1exit=1", "wait"});
  CHECK_THAT(said.out,
             Contains(", attempt 1\n") && Contains("first failure: rank 1, exit code 1") &&
                 Contains("/attempt_1/1/error.json\n") && Contains("  restarts  : 1 of 1 used\n") &&
                 Contains("Before that:\n  attempt 0, ") && Contains(", exit code 3\n"));
}

TEST_CASE("of each earlier attempt the last error is shown, and where its log is") {
  const auto said = explain_after({"--redirects=3", "--max-restarts=2"},
                                  {std::string("#0err=") + kTraceback + "lost\\n\\n",
                                   "#1err=cannot go on\\n \\n", "#0exit=1", "#1exit=4"});
  CHECK_THAT(said.out, Contains(": succeeded after ") &&
                           Contains("\n    ValueError: bad shape (train.py, line 12)\n    in /") &&
                           Contains("/attempt_0/0/stderr.log\n") &&
                           Contains("\n    cannot go on\n    in /") &&
                           Contains("/attempt_1/0/stderr.log\nAll workers succeeded.\n"));
  CHECK_THAT(explain_after({"--max-restarts=1"}, {"#0error-file", "#0exit=1"}).out,
             Contains("/attempt_0/0/error.json\nAll workers succeeded.\n"));
  CHECK_THAT(explain_after({"--max-restarts=1"}, {"#0err=oh\\n", "#0exit=1"}).out,
             Contains(", exit code 1\nAll workers succeeded.\n"));
}

TEST_CASE("what went to files only is shown from there") {
  const auto said = explain_after({"--tee=1", "--report-lines=0", "-r2"},
                                  {"out=step 8\\n", "err=Address already in use\\n", "exit=1"});
  CHECK_THAT(said.out, Contains("/attempt_0/0/stdout.log:\n    step 8\n") &&
                           Contains("Address already in use\n") && Contains("omit --master-port"));
}

TEST_CASE("a hang is explained with its stacks, a killed worker with what kills workers") {
  const auto hung = explain_after({"--hang-timeout=0.2"}, {"wait"});
  CHECK_THAT(hung.out, Contains("exit code 124") && Contains("  hang      : ") &&
                           Contains("it made no progress") && Contains("/attempt_0/0/stacks.txt"));
  const auto killed = explain_after({}, {"kill-self=KILL"});
  CHECK_THAT(killed.out, Contains("exit code 137"));
  // Whether the kernel counts its kills depends on the machine.
  const bool known = killed.out.find("the kernel's OOM killer did not act") != std::string::npos;
  CHECK_THAT(killed.out,
             Contains(known ? "  not the kernel: a scheduler" : "if memory ran out (dmesg"));
}

TEST_CASE("of nodes with one log folder, that of the failed worker is shown") {
  Cluster job;
  const std::string logs = job.tmp / "logs";
  for (const int node : {0, 1}) {
    job.fixed(node, 2, {"--log-dir=" + logs, "--redirects=3"},
              {"@0out=I am rank 0\\n", "@1out=I am rank 1\\n", "@1exit=7", "wait"});
  }
  CHECK(job.exit_codes() == std::vector<int>{7, 7});
  std::vector<std::pair<std::string, std::string>> places{
      {logs, ""}, {logs + "/", ""}, {".", logs}};
  for (const auto& entry : fs::directory_iterator(logs)) {
    const std::string run = entry.path().string();
    for (const char* below : {"", "/", "/result.json"}) places.emplace_back(run + below, "");
    places.emplace_back(".", run);
  }
  CHECK(places.size() == 15);  // the folder itself, one for each node, `latest`
  for (const auto& [place, working_folder] : places) {
    CAPTURE(place, working_folder);
    const auto said = explain(place, working_folder);
    CHECK_THAT(said.out, Contains("first failure: rank 1, exit code 7\n") &&
                             Contains("stdout.log:\n    I am rank 1\n") &&
                             !Contains("I am rank 0") && Contains("full output: " + logs + "/") &&
                             Contains("try --standalone --nproc_per_node=1: if"));
  }
}

// As a node keeps it whose own worker is `rank`, where rank 1 failed first.
void keep_record(const TempFolder& logs, const std::string& name, int rank, const char* time) {
  logs.write(name + "/result.json",
             fmt::format(R"({{"outcome":"failed","run_id":"none","host":"{0}","exit_code":7,)"
                         R"("workers":[{{"rank":{1},"pid":1{1}}}],"failures":[{{"rank":1,"pid":11,)"
                         R"("local_rank":0,"exit_code":7,"time":{2},"host":"b"}}]}})",
                         name, rank, time));
  logs.write(name + "/attempt_0/0/stderr.log", "of " + name + "\n");
}

TEST_CASE("files of a node beside are taken only if it has seen the same failure") {
  const TempFolder logs;
  keep_record(logs, "a", 0, "100.25");
  keep_record(logs, "yesterday", 1, "90.25");
  CHECK_THAT(explain(logs / "a").out,
             StartsWith("run none on a: ") && !Contains("yesterday") &&
                 Contains("its files are on b: run ddp-run --explain there"));
  keep_record(logs, "b", 1, "100.25");
  CHECK_THAT(explain(logs / "a").out,
             StartsWith("run none on a: ") && !Contains("yesterday") && Contains("    of b\n"));
}

TEST_CASE("runs that did not fail are told apart") {
  CHECK_THAT(explain_after({}, {"exit=0"}).out,
             Contains(": succeeded after ") && Contains("All workers succeeded.\n"));
  const TempFolder tmp;
  const auto trainer_ends_with = [&](const std::string& code) {
    run_to_end(trainer_job(tmp, {"--log-dir=" + tmp.path() + "/logs"}, {"exit=" + code}));
    return explain(tmp.path() + "/logs").out;
  };
  CHECK_THAT(trainer_ends_with("75"),
             Contains(": preempted after ") && Contains("rerun the same command"));
  CHECK_THAT(trainer_ends_with("76"), Contains("it would fail again"));
  CHECK_THAT(explain_after({}, {"exit=75"}).out,
             Contains(": failed after ") && !Contains("rerun the same command"));
  CHECK_THAT(explain_after({}, {"exit=76"}).out, !Contains("it would fail again"));
  ChildProgram job(stub_job(tmp, {"--log-dir=" + tmp.path() + "/logs"}, {"wait"}));
  job.wait_for("waiting ");
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  CHECK_THAT(explain(tmp.path() + "/logs").out, Contains(": interrupted after ") &&
                                                    Contains("exit code 130") &&
                                                    Contains("SIGINT ended the job: Ctrl-C.\n"));
}

TEST_CASE("a killed agent and a program that was not found leave a result") {
  const TempFolder tmp;
  const std::string logs = tmp.path() + "/logs";
  ChildProgram job(stub_job(tmp, {"--log-dir=" + logs}, {"parent", "wait"}));
  const pid_t agent = agent_of(job);
  job.wait_for("waiting ");
  ::kill(agent, SIGKILL);
  CHECK(job.wait_exit() == 137);
  CHECK_THAT(explain(logs).out, Contains("agent process ended without a result"));
  ChildOptions bad = stub_job(tmp, {"--log-dir=" + logs}, {});
  bad.argv.back() = tmp.write("no_interpreter", "#!/no/such/interpreter\n", true);
  CHECK(run_to_end(bad).exit == 127);
  CHECK_THAT(explain(logs).out, Contains("exit code 127: ") && Contains("cannot execute"));
}

// As torchrun leaves it: error files and logs, nothing else.
TEST_CASE("without a record an exception is found in the logs that torchrun leaves") {
  const TempFolder tmp;
  const std::filesystem::path rank = tmp.path() + "/logs/none_abc/attempt_0/1";
  std::filesystem::create_directories(rank);
  std::ofstream(rank / "stderr.log") << "Traceback (most recent call last):\n"
                                        "  File \"train.py\", line 7, in <module>\n"
                                        "    step()\nValueError: no batch\n";
  CHECK_THAT(explain(tmp.path() + "/logs").out,
             Contains("look at train.py, line 7, which led to ValueError: no batch"));
}

TEST_CASE("of ranks without a record the exception that was written first counts") {
  const TempFolder tmp;
  const auto write = [&](const char* rank, const std::string& error) {
    return tmp.write(std::string("none_abc/attempt_0/") + rank + "/stderr.log",
                     "  File \"train.py\", line 7, in <module>\n" + error + "\n");
  };
  const std::string lost = write("0", "RuntimeError: Connection closed by peer");
  fs::last_write_time(write("1", "ValueError: no batch"),
                      fs::last_write_time(lost) - std::chrono::seconds(1));
  CHECK_THAT(explain(tmp.path()).out,
             EndsWith("What to do:\n  look at train.py, line 7, which led to ValueError: no batch\n"
                      "  full output: " +
                      tmp.path() + "/none_abc\n"));
}

TEST_CASE("without files there is only advice") {
  const TempFolder tmp;
  fs::create_directories(tmp / "run/attempt_0/0");
  CHECK_THAT(explain(tmp / "run").out,
             Contains("run: no result.json. ") && !Contains("What attempt") &&
                 EndsWith("What to do:\n  the workers' output was not kept\n  to keep every "
                          "rank's output, rerun with --log-dir=logs --tee=3\n"));
  tmp.write("run/attempt_0/0/stderr.log", "");
  CHECK_THAT(
      explain(tmp / "run").out,
      EndsWith("  the workers wrote nothing\n  its log files are empty: " + (tmp / "run") + "\n"));
  tmp.write("run/result.json", R"({"run_id":)");
  CHECK_THAT(explain(tmp / "run").out,
             StartsWith(tmp / "run: its result.json is damaged or truncated.\n") &&
                 !Contains("no result.json"));
}

TEST_CASE("a file in the folder of a run stands for the run") {
  const TempFolder tmp;
  run_to_end(stub_job(tmp, {"--log-dir=" + tmp.path() + "/logs", "--redirects=3"},
                      {"err=no paper\\n", "exit=4"}));
  const std::string run = fs::canonical(tmp / "logs/latest").string();
  const std::string whole = explain(run).out;
  CHECK_THAT(whole, Contains("full output: " + run + "/attempt_0/0/stderr.log\n"));
  for (const char* part :
       {"/result.json", "/attempt_0", "/attempt_0/", "/attempt_0/0", "/attempt_0/0/stderr.log"}) {
    CAPTURE(part);
    CHECK(explain(run + part).out == whole);
  }
  tmp.write("attempt_1", "a file of the user's");
  CHECK(explain(tmp / "attempt_1").exit == 2);
}

TEST_CASE("the folder of a run without a record is explained by the first error file") {
  const TempFolder tmp;
  const std::filesystem::path run = tmp.path() + "/logs/none_abc";
  for (const char* rank : {"0", "1"})
    std::filesystem::create_directories(run / "attempt_10" / rank);
  std::filesystem::create_directories(run / "attempt_9/0");
  std::ofstream(run / "attempt_10/0/error.json")
      << R"({"message":{"message":"later","extraInfo":{"py_callstack":"later","timestamp":"20"}}})";
  std::ofstream(run / "attempt_10/1/error.json")
      << R"({"message":{"message":"m","extraInfo":{"py_callstack":"Traceback\nFileNotFoundError: x",)"
      << R"("timestamp":"10"}}})";
  std::ofstream(run / "attempt_10/0/stderr.log") << "lost my peer\n";
  const auto said = explain(tmp.path() + "/logs");
  CHECK(said.exit == 0);
  CHECK_THAT(said.out, Contains("no result.json") && Contains("What attempt 10 left:") &&
                           Contains("First to write an error file: local rank 1, at ") &&
                           Contains("    FileNotFoundError: x\n") &&
                           Contains("    lost my peer\n") &&
                           Contains("paths are relative to the folder"));
}

TEST_CASE("a result file is enough, and what is not one is refused in one line") {
  const TempFolder tmp;
  const std::string file = tmp / "result";
  run_to_end(stub_job(tmp, {"--result-json=" + file}, {"err=no paper\\n", "exit=4"}));
  CHECK_THAT(explain(file).out, Contains("first failure: rank 0, exit code 4") &&
                                    Contains("  stderr    : no paper\n"));
  const auto refused = [&](const std::string& path, const std::string& why) {
    const auto said = explain(path);
    CHECK(said.exit == 2);
    CHECK(said.out.empty());
    CHECK_THAT(said.err, StartsWith("error: --explain=" + path + ": " + why));
    CHECK(lines_of(said.err).size() == 1);
  };
  refused(tmp / "none", "no such file or folder");
  refused(tmp.write("text", "[1, {"), "is not the result of a run");
  refused(tmp.write("empty", "{}"), "is not the result of a run");
  std::filesystem::create_directory(tmp / "folder");
  refused(tmp / "folder", "holds no run");
  ChildOptions both = stub_job(tmp, {"--explain=" + file}, {});
  CHECK_THAT(run_to_end(both).err, StartsWith("error: --explain starts nothing: leave out '"));
}

TEST_CASE("numbers and texts of a wrong kind in a result are left out") {
  const TempFolder tmp;
  const std::string file = tmp.write(
      "odd", R"({"outcome":"failed","exit_code":"x","seconds":[],"run_id":7,"earlier":[1,{}],)"
             R"("failures":[{"rank":"one","stderr":{},"signal":9,"local_rank":0,)"
             R"("hang":"\u001b[31m"}, 3]})");
  const auto said = explain(file);
  CHECK(said.exit == 0);
  CHECK_THAT(said.out, Contains("failed after") && Contains("exitcode  : -9") &&
                           Contains("hang      : ?[31m"));
}

}  // namespace
}  // namespace ddp::test
