// What becomes of the workers' output: real processes, real pipes.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "tests/support/catch.h"

#include "tests/launcher/ddp_run.h"
#include "tests/launcher/paused_reader.h"
#include "tests/support/skip.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

std::string read_log(const TempFolder& logs, const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs.path())) {
    const std::string path = entry.path().string();
    if (path.size() > name.size() &&
        path.compare(path.size() - name.size(), name.size(), name) == 0) {
      std::stringstream text;
      text << std::ifstream(path, std::ios::binary).rdbuf();
      return text.str();
    }
  }
  return "(no such file)";
}

Finished run_logged(const TempFolder& logs, Lines options, const Lines& actions) {
  const TempFolder tmp;
  options.push_back("--log-dir=" + logs.path());
  auto finished = run_to_end(stub_job(tmp, options, actions));
  CHECK(nothing_left(tmp));
  return finished;
}

TEST_CASE("stderr reaches the console unchanged and its last lines are in the report") {
  const TempFolder tmp;
  const auto job = run_to_end(
      stub_job(tmp, {"--nproc_per_node=2"},
               {"@1err=half a ", "@1err=line\\n\\rbar 50%\\rbar 100%", "@1exit=4", "wait"}));
  CHECK(job.exit == 4);
  CHECK_THAT(job.err, Catch::StartsWith("half a line\n\rbar 50%\rbar 100%"));
  CHECK_THAT(job.err, Contains("  stderr    : half a line\n"));
}

TEST_CASE("redirected streams are in their files and not on the console") {
  const TempFolder logs;
  const auto job = run_logged(logs, {"-r3", "--nproc_per_node=2"},
                              {"@1out=hello\\n", "@1err=trouble\\n", "@1exit=3", "wait"});
  CHECK(job.out.empty());
  CHECK(read_log(logs, "attempt_0/1/stdout.log") == "hello\n");
  CHECK(read_log(logs, "attempt_0/1/stderr.log") == "trouble\n");
  CHECK_THAT(job.err,
             Contains("  stderr    : trouble\n") && Contains("logs of this run: " + logs.path()));
}

TEST_CASE("teed lines carry a prefix, files do not") {
  const TempFolder logs;
  const auto job = run_logged(logs, {"-t3", "--role=r"}, {"out=one\\ntwo", "err=a\\r\\nb\\rc"});
  CHECK(job.out == "[r0]:one\n[r0]:two\n");
  CHECK_THAT(job.err, Contains("[r0]:a\n[r0]:b\n[r0]:c\n"));
  CHECK(read_log(logs, "0/stdout.log") == "one\ntwo");
  CHECK(read_log(logs, "0/stderr.log") == "a\r\nb\rc");
}

TEST_CASE("a line of a mebibyte, binary bytes and a bar come through whole") {
  const TempFolder logs;
  const auto job =
      run_logged(logs, {"-t1", "--nproc_per_node=2"},
                 {"repeat=1048576:x", "out=\\n", "out=\\0\xff\\n", "out=1%\\r2%\\r", "out=end"});
  Lines found = lines_of(job.out);
  std::sort(found.begin(), found.end());
  Lines wanted;
  for (const std::string rank : {"0", "1"}) {
    const std::string prefix = "[default" + rank + "]:";
    for (const auto& line : {std::string("\0\xff", 2), std::string("1%"), std::string("2%"),
                             std::string("end"), std::string(1 << 20, 'x')}) {
      wanted.push_back(prefix + line);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  CHECK((found == wanted));
  CHECK(read_log(logs, "1/stdout.log") ==
        std::string(1 << 20, 'x') + "\n" + std::string("\0\xff", 2) + "\n1%\r2%\rend");
}

TEST_CASE("a line is shown while its worker goes on") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"-t3", "--log-dir=" + tmp.path()}, {"out=now\\n", "wait"}));
  job.wait_for("[default0]:now");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("time stamps stand before the lines of both streams, with no need of files") {
  const auto is_time = [](const std::string& line) {
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, milli = -1, read = 0;
    double second = -1;
    std::sscanf(line.c_str(), "%4d-%2d-%2d %2d:%2d:%lf%n", &year, &month, &day, &hour, &minute,
                &second, &read);
    std::sscanf(line.c_str() + 20, "%3d", &milli);
    return year > 2000 && read == 23 && milli >= 0;
  };
  const TempFolder tmp;
  const auto job =
      run_to_end(stub_job(tmp, {"--tee=3", "--log-line-prefix-template=${time} [${rank}]: "},
                          {"out=one\\n", "err=two\\n"}));
  REQUIRE(job.out.size() > 23);
  REQUIRE(job.err.size() > 23);
  CHECK(is_time(job.out));
  CHECK(job.out.substr(23) == " [0]: one\n");
  CHECK(is_time(job.err));
  CHECK(job.err.substr(23) == " [0]: two\n");
  CHECK(nothing_left(tmp));
}

TEST_CASE("equal lines of all ranks are shown once, others with their rank") {
  const TempFolder logs;
  // Each waits long enough: 10 s are never reached, the last rank's line ends the wait.
  const auto job = run_logged(
      logs, {"-t1", "--nproc_per_node=8", "--fold-lines=10000"},
      {"out=hello\\n", "@3out=I am three\\n", "out=step 1\\n", "@0out=half", "out=bye\\n"});
  const Lines lines = lines_of(job.out);
  REQUIRE(lines.size() >= 4);
  CHECK(lines[0] == "[default0-7]:hello");
  CHECK(std::count(lines.begin(), lines.end(), "[default3]:I am three") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "[default0-7]:step 1") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "[default0]:halfbye") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "[default1-7]:bye") == 1);
  CHECK(lines.size() == 5);
  CHECK(read_log(logs, "3/stdout.log") == "hello\nI am three\nstep 1\nbye\n");
}

TEST_CASE("a line that no other rank says is shown after a moment") {
  const TempFolder tmp;
  ChildProgram job(
      stub_job(tmp, {"--nproc_per_node=2", "--fold-lines=20"}, {"@0out=alone\\n", "wait"}));
  job.wait_for("[default0]:alone");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("redirected and teed logs are rotated, and hold every byte") {
  const TempFolder logs;
  const auto job = run_logged(logs, {"-t1", "-r2", "--log-max-size=4K:2"},
                              {"repeat=1000:0123456789\\n", "err=trouble\\n", "exit=3"});
  CHECK(lines_of(job.out).size() == 1000);
  const std::string older = read_log(logs, "0/stdout.log.1");
  CHECK(older.size() == 4092);  // 372 whole lines
  CHECK(read_log(logs, "0/stdout.log").size() == 1000 * 11 - 2 * 4092);
  CHECK(read_log(logs, "0/stdout.log.2").size() == 4092);
  CHECK(read_log(logs, "0/stderr.log") == "trouble\n");
  CHECK_THAT(job.err, Contains("  stderr    : trouble\n"));
}

TEST_CASE("the link latest leads to the newest run") {
  const TempFolder logs;
  run_logged(logs, {"-r1"}, {"out=first"});
  run_logged(logs, {"-r1"}, {"out=second"});
  std::stringstream text;
  text << std::ifstream(logs / "latest/attempt_0/0/stdout.log").rdbuf();
  CHECK(text.str() == "second");
  CHECK(std::filesystem::read_symlink(logs / "latest").is_relative());
  // A file of the user's is left alone.
  std::filesystem::remove(logs / "latest");
  logs.write("latest", "mine");
  run_logged(logs, {"-r1"}, {"out=third"});
  CHECK(std::filesystem::is_regular_file(logs / "latest"));
}

TEST_CASE("a full disk is said once and ends no job") {
  const TempFolder logs;
  const TempFolder tmp;
  const auto job = run_to_end(
      in_shell("ulimit -f 8; exec \"$@\"", stub_job(tmp, {"-t1", "--log-dir=" + logs.path()},
                                                    {"repeat=5000:0123456789\\n", "out=end\\n"})));
  CHECK(job.exit == 0);
  CHECK(lines_of(job.out).size() == 5001);
  CHECK_THAT(job.err, Contains("stdout.log': File too large; the rest of this log is missing"));
}

TEST_CASE("a full disk below a redirected stderr is in the failure report") {
  const TempFolder logs, tmp;
  const std::string disk = "mount -t tmpfs -o size=64k none '" + logs.path() + "'";
  auto options =
      stub_job(tmp, {"-r3", "--log-dir=" + logs.path()}, {"repeat=20000:0123456789\\n", "exit=3"});
  if (run_to_end(in_namespace({.argv = {"/bin/sh", "-c", disk}})).exit != 0)
    return say_skipped("no user namespaces here");
  CHECK_THAT(run_to_end(in_namespace(in_shell(disk + " && exec \"$@\"", options))).err,
             Contains("  stderr    : (No space left on device: this log"));
}

TEST_CASE("of thirty-two workers no line is torn or lost") {
  const TempFolder logs;
  const auto job = run_logged(
      logs, {"-t1", "--nproc_per_node=32", "--log-line-prefix-template=${rank}: "}, {"lines=1000"});
  CHECK(job.exit == 0);
  std::map<int, int> next;
  for (const auto& line : lines_of(job.out)) {
    int prefix = -1, rank = -2, number = -1, read = 0;
    std::sscanf(line.c_str(), "%d: begin %d %d end%n", &prefix, &rank, &number, &read);
    REQUIRE(read == static_cast<int>(line.size()));
    REQUIRE(prefix == rank);
    REQUIRE(number == next[rank]++);
  }
  CHECK(next.size() == 32);
  CHECK(std::all_of(next.begin(), next.end(),
                    [](const auto& entry) { return entry.second == 1000; }));
}

TEST_CASE("each attempt has its own logs") {
  const TempFolder logs;
  run_logged(logs, {"-r1", "--max_restarts=1"}, {"#0out=first", "#0exit=1", "out=second"});
  CHECK(read_log(logs, "attempt_0/0/stdout.log") == "first");
  CHECK(read_log(logs, "attempt_1/0/stdout.log") == "second");
}

TEST_CASE("only the chosen ranks reach the console") {
  const TempFolder logs;
  const auto job =
      run_logged(logs, {"--local-ranks-filter=1", "--nproc_per_node=3"}, {"out=x\\n", "err=y\\n"});
  CHECK(job.out == "x\n");
  CHECK(job.err == "y\n");
  CHECK_THAT(run_logged(logs, {"--local-ranks-filter=1,2"}, {"out=x\n"}).err,
             Contains("--local-ranks-filter=1,2: the last local rank here is 0; no output"));
}

TEST_CASE("lines with a wanted text are copied to the filtered file") {
  const TempFolder logs;
  run_logged(logs, {"-t1", "--nproc_per_node=2", "--duplicate-stdout-filters=loss,best"},
             {"@1out=loss 3\\nother\\nthe best\\n"});
  CHECK(read_log(logs, "attempt_0/filtered_stdout.log") ==
        "[default1]:loss 3\n[default1]:the best\n");
}

TEST_CASE("filters copy lines without --tee, and the console stays as it is") {
  const TempFolder logs;
  const auto job =
      run_logged(logs, {"--duplicate-stdout-filters=loss", "--duplicate-stderr-filters=bad"},
                 {"out=loss 3\\nother", "err=all bad\\n"});
  CHECK(job.exit == 0);
  CHECK(job.out == "loss 3\nother");
  CHECK_THAT(job.err, Catch::EndsWith("all bad\n"));
  CHECK(read_log(logs, "attempt_0/filtered_stdout.log") == "[default0]:loss 3\n");
  CHECK(read_log(logs, "attempt_0/filtered_stderr.log") == "[default0]:all bad\n");
}

TEST_CASE("with --log-dir=/dev/null --tee and --redirects are taken and write no file") {
  const TempFolder tmp;
  const auto job = run_to_end(
      stub_job(tmp, {"--log-dir=/dev/null", "-t1", "-r3", "--duplicate-stdout-filters=x"},
               {"out=one\\n", "err=two\\n"}));
  CHECK(job.exit == 0);
  CHECK(job.out == "[default0]:one\n");
  CHECK(job.err == "two\n");
  CHECK(nothing_left(tmp));
}

TEST_CASE("redirected logs without --log-dir stay in the temporary folder, and the place is said") {
  const TempFolder tmp;
  const auto job = run_to_end(stub_job(tmp, {"-r1"}, {"out=kept"}));
  CHECK_THAT(job.err, Contains("logs of this run: " + tmp.path()));
  CHECK(read_log(tmp, "0/stdout.log") == "kept");
}

TEST_CASE("with --tee alone nothing is left in the temporary folder after a success") {
  const TempFolder tmp;
  const auto job = run_to_end(
      stub_job(tmp, {"-t3", "--max_restarts=1"}, {"#0out=first\\n", "#0exit=1", "exit=0"}));
  CHECK(job.exit == 0);
  CHECK(job.out == "[default0]:first\n");
  CHECK(nothing_left(tmp));
}

TEST_CASE(
    "with --tee alone the logs of all attempts stay after a failure, and the report names them") {
  const TempFolder tmp;
  const auto job = run_to_end(
      stub_job(tmp, {"-t3", "--max_restarts=1"}, {"#0out=first\\n", "#1out=second\\n", "exit=1"}));
  CHECK(job.exit == 1);
  CHECK(read_log(tmp, "attempt_0/0/stdout.log") == "first\n");
  CHECK(read_log(tmp, "attempt_1/0/stdout.log") == "second\n");
  CHECK_THAT(job.err, Contains(tmp.path() + "/ddp-run"));
}

TEST_CASE("workers' output that a full disk does not take is a failure") {
  const TempFolder tmp;
  const auto job =
      run_to_end(in_shell("exec \"$@\" >/dev/full", stub_job(tmp, {"--tee=3"}, {"print=lost"})));
  CHECK(job.exit == 1);
  CHECK_THAT(job.err, Contains("cannot write the workers' output: No space left on device"));
}

TEST_CASE("workers outlive the reader of ddp-run's stdout, and the job goes on") {
  const TempFolder tmp;
  // More than all pipes on the way hold.
  const std::string lines = R"(line=$(printf %0999d 0); i=0
      while [ $((i += 1)) -le 2000 ]; do echo $line || exit 3; done; : > saved)";
  const auto job =
      run_to_end(in_shell(R"({ "$@"; echo exit code $? >&2; } | head -n 1)",
                          {.argv = {kDdpRun, "/bin/sh", "-c", lines}, .folder = tmp.path()}));
  CHECK(job.out == std::string(999, '0') + "\n");
  CHECK_THAT(job.err, Contains("exit code 0\n"));
  CHECK_THAT(job.err, Contains("ddp-run: the reader of standard output has exited; the job "
                               "continues without it\n"));
  CHECK(std::filesystem::exists(tmp / "saved"));
}

TEST_CASE("a console that nobody reads does not keep ddp-run from ending") {
  // A full pipe instead of a reader.
  const TempFolder tmp;
  PausedReader reader;
  reader.fill();
  ChildProgram job(reader.redirect("2>$pipe", stub_job(tmp, {}, {"err=unread\\n", "wait"})));
  job.wait_for("waiting");
  job.signal(SIGTERM);
  reader.leave();
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

}  // namespace
}  // namespace ddp::test
