// ddp-run as its users see it: real processes, stub workers.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fstream>
#include <utility>
#include "tests/support/catch.h"

#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

Lines sorted(Lines lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

Finished run(const Lines& options, const Lines& actions) {
  const TempFolder tmp;
  auto finished = run_to_end(stub_job(tmp, options, actions));
  CHECK(nothing_left(tmp));  // whatever happens, nothing is left in TMPDIR
  return finished;
}

Finished run_program(const Lines& args) {
  const TempFolder tmp;
  ChildOptions child;
  child.argv = {kDdpRun};
  child.argv.insert(child.argv.end(), args.begin(), args.end());
  child.set["TMPDIR"] = tmp.path();
  child.unset = {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"};
  auto finished = run_to_end(child);
  CHECK(nothing_left(tmp));
  return finished;
}

TEST_CASE("a message that quotes a long argument keeps its beginning and its end") {
  const TempFolder tmp;
  const std::string longest(100'000, 'x');
  for (const std::string& option : {"--hosts=a b," + longest, "--nproc-per-node=" + longest,
                                    "--" + longest, "--rdzv-conf=" + longest + "=1"}) {
    const auto job = run_to_end(stub_job(tmp, {option}, {"exit=0"}));
    INFO(option.substr(0, 30));
    CHECK(job.err.size() < 3'100);
    CHECK_THAT(job.err, Contains(option.substr(0, 7)) && Contains(" bytes] ... x"));
  }
}

TEST_CASE("a job that succeeds is quiet") {
  const auto job = run({"--standalone", "--nproc_per_node=3"}, {"env=RANK"});
  CHECK(job.exit == 0);
  CHECK(job.err.empty());
  CHECK(sorted(lines_of(job.out)) == Lines{"RANK=0", "RANK=1", "RANK=2"});
}

TEST_CASE("each worker finds torchrun's environment") {
  const auto job = run(
      {"--nproc-per-node=2", "--max-restarts=4", "--role=r", "--rdzv-id=id7"},
      {"@1env=LOCAL_RANK", "@1env=WORLD_SIZE", "@1env=LOCAL_WORLD_SIZE", "@1env=GROUP_RANK",
       "@1env=GROUP_WORLD_SIZE", "@1env=ROLE_NAME", "@1env=ROLE_RANK", "@1env=ROLE_WORLD_SIZE",
       "@1env=MASTER_ADDR", "@1env=TORCHELASTIC_RESTART_COUNT", "@1env=TORCHELASTIC_MAX_RESTARTS",
       "@1env=TORCHELASTIC_RUN_ID", "@1env=TORCHELASTIC_USE_AGENT_STORE"});
  CHECK(lines_of(job.out) == Lines{"LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                                   "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=r",
                                   "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                   "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=4",
                                   "TORCHELASTIC_RUN_ID=id7", "TORCHELASTIC_USE_AGENT_STORE=True"});
}

TEST_CASE("OMP_NUM_THREADS is set for several workers, and said in one line") {
  const auto job = run_program({"--nproc_per_node=64", kStub, "@0env=OMP_NUM_THREADS"});
  CHECK(job.out == "OMP_NUM_THREADS=1\n");
  CHECK_THAT(job.err, Contains("OMP_NUM_THREADS=1 for each of 64 workers"));
  CHECK(lines_of(job.err).size() == 1);
  CHECK(run_program({kStub, "env=OMP_NUM_THREADS"}).out == "OMP_NUM_THREADS=(unset)\n");
}

TEST_CASE("a worker has a session of its own, no descriptors but three, and a clean signal state") {
  const auto job = run({}, {"fds", "signals", "ids"});
  const auto lines = lines_of(job.out);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "fds 0 1 2");
  CHECK(lines[1] == "SigBlk:\t0000000000000000");
  CHECK(lines[2] == "SigIgn:\t0000000000000000");
  int pid = 0, group = 0, session = 0;
  REQUIRE(std::sscanf(lines[3].c_str(), "pid %d group %d session %d", &pid, &group, &session) == 3);
  CHECK(pid == group);
  CHECK(pid == session);
}

TEST_CASE("rank 0 reads ddp-run's stdin, the other workers end of file") {
  const auto job =
      run_to_end({.argv = {"/bin/sh", "-c",
                           "echo to rank 0 | " + kDdpRun +
                               " --nproc_per_node=3 --no-python sh -c 'echo \"$RANK:$(cat)\"'"},
                  .set = {{"OMP_NUM_THREADS", "1"}}});
  CHECK(sorted(lines_of(job.out)) == Lines{"0:to rank 0", "1:", "2:"});
}

TEST_CASE("the exit code is that of the first worker that failed, with a short report") {
  const auto job = run({"--nproc_per_node=3"}, {"@1exit=7", "wait"});
  CHECK(job.exit == 7);
  CHECK_THAT(job.err, Contains("first failure: rank 1, exit code 7") &&
                          Contains("stopped   : 2 other workers"));
  CHECK_THAT(job.err, Contains("max RSS MiB"));
  CHECK(lines_of(job.err).size() <= 30);
}

TEST_CASE("the table of many workers does not bury the cause unless it is asked for") {
  const auto job = run({"--nproc_per_node=32"}, {"@1exit=7", "wait"});
  CHECK(job.err.find("max RSS MiB") == std::string::npos);
  CHECK(lines_of(job.err).size() <= 30);
  const auto asked = run({"--nproc_per_node=32", "--summary"}, {"@1exit=7", "wait"});
  CHECK_THAT(asked.err, Contains("max RSS MiB"));
}

// Lets a process die of `signal` up to the point where it gives back what it holds.
void hold_while_dying(pid_t pid, int signal) {
  int status = 0;
  REQUIRE(::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) == 0);
  ::kill(pid, signal);
  REQUIRE(::waitpid(pid, &status, __WALL) == pid);
  REQUIRE(::ptrace(PTRACE_CONT, pid, nullptr, signal) == 0);
  REQUIRE(::waitpid(pid, &status, __WALL) == pid);
  REQUIRE(status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8)));
}

TEST_CASE("a crash whose process is still being taken apart is the cause of its peer's failure") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=3"},
                            {"@0hold=USR1", "@0exit=1", "@1ids", "@2trap-exit=0", "wait"}));
  job.wait_for("waiting ", 2);
  const pid_t peer = pid_after(job, "holding");
  const pid_t crashing = pid_after(job, "pid");
  hold_while_dying(crashing, SIGSEGV);
  ::kill(peer, SIGUSR1);
  job.wait_for("got SIGTERM");
  ::ptrace(PTRACE_DETACH, crashing, nullptr, 0);
  CHECK(job.wait_exit() == 128 + SIGSEGV);
  CHECK_THAT(job.err(), Contains("first failure: rank 1, killed by SIGSEGV") &&
                            Contains("also      : rank 0"));
}

TEST_CASE("a worker killed by a signal gives 128 + signal and a likely cause") {
  const auto job = run({"--nproc_per_node=2"}, {"@0kill-self=KILL", "wait"});
  CHECK(job.exit == 128 + SIGKILL);
  CHECK_THAT(job.err, Contains("rank 0, killed by SIGKILL") && Contains("OOM"));
}

TEST_CASE("the whole group is restarted on a new port until it succeeds") {
  const auto job = run({"--nproc_per_node=2", "--max_restarts=3"},
                       {"#0@1env=MASTER_PORT", "#1@0env=MASTER_PORT", "#2@0env=MASTER_PORT",
                        "#0@1exit=1", "#1@0kill-self=ABRT", "#0wait", "#1wait"});
  CHECK(job.exit == 0);
  const auto said = lines_of(job.err);
  REQUIRE(said.size() == 2);
  CHECK_THAT(said[0], Contains("rank 1") && Contains("exit code 1; restart 1 of 3"));
  CHECK_THAT(said[1], Contains("rank 0") && Contains("killed by SIGABRT; restart 2 of 3"));
  // Two rounds in a row have different ports; an earlier one may come again.
  Lines ports;
  for (const auto& line : lines_of(job.out)) {
    if (line.rfind("MASTER_PORT=", 0) == 0) ports.push_back(line);
  }
  REQUIRE(ports.size() == 3);
  CHECK((ports[0] != ports[1] && ports[1] != ports[2]));
}

TEST_CASE("when the restarts are used up the last failure is reported") {
  const auto job = run({"--max_restarts=2"}, {"#0exit=3", "#1exit=4", "exit=5"});
  CHECK(job.exit == 5);
  CHECK_THAT(job.err, Contains("restart 2 of 2") && Contains("restarts  : 2 of 2 used"));
}

// Files are dated by a clock that ticks every few milliseconds, or finer where a date was asked for
// (multigrain timestamps): only files show its state. What is written from now on is later.
void wait_for_tick_of_file_times(const TempFolder& folder) {
  const std::string begin = folder.write("begin", "");
  namespace fs = std::filesystem;
  while (fs::last_write_time(folder.write("now", "")) <= fs::last_write_time(begin)) {
  }
}

TEST_CASE("who wrote its error file before the first death is the cause, whatever ended it") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=3"},
                            {"@1error-file={\"message\":\"boom\"}", "@1wait", "hold=USR1",
                             "error-file={\"message\":\"lost rank 1\"}", "@0exit=1", "wait"}));
  job.wait_for("waiting ");
  job.wait_for("holding ", 2);
  wait_for_tick_of_file_times(tmp);
  for (const auto& line : job.out_lines()) {
    if (line.rfind("holding ", 0) == 0) ::kill(std::stoi(line.substr(8)), SIGUSR1);
  }
  CHECK(job.wait_exit() == 1);
  CHECK_THAT(job.err(), Contains("first failure: rank 1, exit code 1") &&
                            Contains("traceback : boom") &&
                            Contains("it wrote its error file, and was stopped") &&
                            Contains("also      : rank 0") &&
                            Contains("exit code 1; error file: lost rank 1"));
}

TEST_CASE("the message of the error file is in the report, and a broken one does no harm") {
  CHECK_THAT(run({}, {R"(error-file={"message":"no more paper"})", "exit=3"}).err,
             Contains("traceback : no more paper"));
  for (const char* broken : {"error-file=", "error-file={\"mess", "error-file=[]"}) {
    const auto job = run({}, {broken, "exit=3"});
    CHECK(job.exit == 3);
    CHECK_THAT(job.err, Contains("(its error file"));
  }
}

TEST_CASE("with virtual local ranks each worker has one entry of CUDA_VISIBLE_DEVICES, as it is") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--nproc_per_node=2", "--virtual-local-rank"},
                          {"@1env=LOCAL_RANK", "@1env=CUDA_VISIBLE_DEVICES"});
  options.set["CUDA_VISIBLE_DEVICES"] = "5, GPU-abc,9";
  CHECK(run_to_end(options).out == "LOCAL_RANK=0\nCUDA_VISIBLE_DEVICES=GPU-abc\n");
  options.set["CUDA_VISIBLE_DEVICES"] = "5";
  const auto job = run_to_end(options);
  CHECK(job.exit == 2);
  CHECK_THAT(job.err, Contains("--virtual-local-rank needs a GPU for each of 2 workers"));
}

TEST_CASE("a program that is not found or not executable is one line before any worker starts") {
  const TempFolder folder;
  const auto plain = folder.write("plain", "text");
  const auto no_shebang = folder.write("script", "echo hi\n", true);
  const auto windows = folder.write("windows", "#!/bin/sh\r\necho hi\r\n", true);
  const auto bad_shebang = folder.write("bad", "#!/no/such/interpreter\n", true);
  const auto one_line = [](const Finished& job, int exit, const std::string& text) {
    CHECK(job.exit == exit);
    CHECK(job.out.empty());
    CHECK_THAT(job.err, Catch::StartsWith("error: ") && Contains(text));
    CHECK(lines_of(job.err).size() == 1);
  };
  one_line(run_program({"no-such-program"}), 127, "was not found");
  one_line(run_program({plain}), 126, "is not executable");
  one_line(run_program({no_shebang}), 126, "Exec format error; a script needs a first line");
  one_line(run_program({bad_shebang}), 127, "its interpreter (first line)");
  one_line(run_program({windows}), 127, "Windows line endings");
  one_line(run_program({"--nproc_per_node=0", "true"}), 2, "--nproc_per_node=0");
  one_line(run_program({"--log-dir=" + plain, "true"}), 2, "--log-dir=");
  one_line(run_program({"--nporc_per_node=2", "true"}), 2, "did you mean --nproc-per-node?");
}

TEST_CASE("a file in the working folder that is not on PATH is shown how to be run") {
  const TempFolder folder;
  folder.write("program", "", true);
  folder.write("text", "");
  const auto answer = [&](const std::string& name) {
    return run_to_end({.argv = {kDdpRun, name}, .folder = folder.path()}).err;
  };
  CHECK_THAT(answer("program"), Catch::EndsWith("; did you mean ./program?\n"));
  CHECK_THAT(
      answer("text"),
      Catch::EndsWith("use --run-path if it is Python, else chmod +x text and write ./text\n"));
}

TEST_CASE("ddp-run finds a program that lies beside it") {
  const TempFolder folder;
  std::filesystem::copy_file(kDdpRun, folder / "ddp-run");
  std::filesystem::copy_file(kStub, folder / "beside_stub");
  const auto job = run_to_end({.argv = {folder / "ddp-run", "beside_stub", "print=hello"}});
  CHECK(job.out == "hello\n");
}

// As NCCL's watchdog does.
TEST_CASE(
    "a worker that wrote its error file is the cause, not its peers that abort at its death") {
  const TempFolder tmp;
  std::vector<std::string> actions;
  for (const std::string rank : {"0", "1", "2"}) {
    REQUIRE(::mkfifo((tmp / ("pipe" + rank)).c_str(), 0600) == 0);
    actions.push_back("@3open=" + (tmp / ("pipe" + rank)));
    actions.push_back("@" + rank + "until-eof=" + (tmp / ("pipe" + rank)));
  }
  for (const char* action : {R"(@3error-file={"message":"no more paper"})", "@3exit=1"})
    actions.emplace_back(action);
  actions.emplace_back("kill-self=ABRT");
  for (int round = 0; round < 5; ++round) {
    const auto job = run_to_end(stub_job(tmp, {"--nproc_per_node=4"}, actions));
    CHECK(job.exit == 1);
    CHECK_THAT(job.err,
               Contains("first failure: rank 3, exit code 1") && Contains("no more paper"));
  }
}

TEST_CASE("with --log-dir the error files of every attempt stay") {
  const TempFolder tmp, logs;
  const auto job =
      run_to_end(stub_job(tmp, {"--log-dir=" + (logs / "a/b"), "--rdzv-id=job", "--max_restarts=1"},
                          {R"(error-file={"message":"m"})", "exit=3"}));
  CHECK_THAT(job.err, Contains("error_file: " + logs.path()));
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs.path())) {
    files += entry.path().filename() == "error.json" ? 1 : 0;
  }
  CHECK(files == 2);
}

TEST_CASE("a log folder /dev/null means no files at all") {
  CHECK(run({"--log-dir=/dev/null"}, {"env=TORCHELASTIC_ERROR_FILE"}).out ==
        "TORCHELASTIC_ERROR_FILE=\n");
}

TEST_CASE("a dry run of one node of two has the ranks and the store of the job") {
  const auto job =
      run({"--dry-run", "--nnodes=2", "--node-rank=1", "--master-addr=gpu1"}, {"print=x"});
  CHECK_THAT(job.out, Contains(" RANK=1 ") && Contains(" WORLD_SIZE=2 ") &&
                          Contains(" MASTER_ADDR=gpu1 MASTER_PORT=29500 ") &&
                          Contains(" TORCHELASTIC_USE_AGENT_STORE=True "));
}

TEST_CASE("a dry run prints each worker's command and starts nothing") {
  const auto job = run({"--dry-run", "--nproc_per_node=2"}, {"print=${local_rank}"});
  CHECK(job.exit == 0);
  REQUIRE(lines_of(job.out).size() == 2);
  CHECK_THAT(lines_of(job.out)[1], Catch::StartsWith("env ") && Contains(" RANK=1 ") &&
                                       Catch::EndsWith(kStub + " print=1"));
  CHECK_THAT(job.out, Contains("/attempt_0/1/error.json ") &&
                          Contains("/dev/shm/ddp-run-XXXXXX/heartbeat.1 ") &&
                          Contains(" DDP_SHM_DIR=/dev/shm/ddp-run-XXXXXX "));
  const auto same = run_to_end({.argv = {"/bin/sh", "-c", lines_of(job.out)[1]}});
  CHECK(same.out == "1\n");
}

TEST_CASE("exit codes 75 and 76 of a program that is not the installed trainer are restarted") {
  for (const std::string code : {"75", "76", "2"}) {
    const TempFolder folder;
    const std::vector<std::string> actions{"#0exit=" + code, "print=second round"};
    const auto other = run_to_end(stub_job(folder, {"--max-restarts=1"}, actions));
    CHECK(other.exit == 0);
    CHECK(other.out == "second round\n");
    const auto own = run_to_end(trainer_job(folder, {"--max-restarts=1"}, actions));
    CHECK(own.exit == std::stoi(code));
    CHECK(own.out.empty());
  }
}

TEST_CASE("SIGTERM and a worker's 75 are a preemption of trainer, an interruption of others") {
  const auto code_after_term = [](const ChildOptions& options) {
    ChildProgram job(options);
    job.wait_for("waiting ");
    job.signal(SIGTERM);
    return job.wait_exit();
  };
  const TempFolder folder;
  const std::vector<std::string> actions{"trap-exit=75", "wait"};
  CHECK(code_after_term(trainer_job(folder, {}, actions)) == 75);
  CHECK(code_after_term(stub_job(folder, {}, actions)) == 128 + SIGTERM);
}

TEST_CASE("a usage error that trainer has explained gets one line") {
  const TempFolder folder;
  const std::vector<std::string> actions{"@0err=error: no such key\\n", "exit=2"};
  const auto job = run_to_end(trainer_job(folder, {"--nproc_per_node=1"}, actions));
  CHECK(job.exit == 2);
  CHECK(job.err ==
        "error: no such key\n"
        "ddp-run: the job failed: trainer rejected its command line or configuration (exit code "
        "2); see its message\n");
  // What nobody has seen is reported.
  const std::string logs = "--log-dir=" + folder.path() + "/logs";
  CHECK_THAT(run_to_end(trainer_job(folder, {"--redirects=3", logs}, actions)).err,
             Contains("Root Cause") && Contains("error: no such key"));
  CHECK_THAT(run_to_end(trainer_job(folder, {}, {"exit=2"})).err, Contains("Root Cause"));
  CHECK_THAT(run_to_end(stub_job(folder, {}, actions)).err, Contains("Root Cause"));
}

TEST_CASE("the summary has a line for each worker") {
  const auto job = run({"--nproc_per_node=3", "--summary"}, {"exit=0"});
  CHECK_THAT(job.err, Contains("spawned s") && Contains("first line s"));
  CHECK(lines_of(job.err).size() == 4);
  CHECK_THAT(job.err, Contains("max RSS MiB"));
}

TEST_CASE("the version goes to stdout") {
  CHECK_THAT(run_program({"--version"}).out, Catch::StartsWith("ddp-run "));
}

}  // namespace
}  // namespace ddp::test
