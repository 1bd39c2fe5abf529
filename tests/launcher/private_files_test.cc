// What ddp-run creates where others may write or read: /tmp, --result-json.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include "tests/support/catch.h"

#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;

unsigned mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

fs::path run_folder_in(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !entry.is_symlink()) return entry.path();
  }
  return {};
}

ChildOptions under_umask(const ChildOptions& job, const std::string& mask) {
  return in_shell("umask " + mask + "; exec \"$@\"", job);
}

TEST_CASE("a link planted under the name of a temporary file does not lead to another file") {
  const TempFolder tmp;
  const std::string victim = tmp.write("victim", "kept");
  const std::string result = tmp / "result";
  const ChildProgram probe({.argv = {"true"}});
  for (int i = 0; i < 500; ++i)  // names that follow from the process ids to come
    fs::create_symlink(victim, result + ".tmp" + std::to_string(probe.pid() + i));
  CHECK(run_to_end(stub_job(tmp, {"--result-json=" + result}, {})).exit == 0);
  CHECK(text_of(victim) == "kept");
  CHECK(fs::symlink_status(result).type() == fs::file_type::regular);
  CHECK(text_of(result).find("\"succeeded\"") != std::string::npos);
}

TEST_CASE("the result has the mode that the umask asks for, and nothing else is left") {
  const TempFolder tmp;
  fs::create_directory(tmp / "there");
  const auto job = stub_job(tmp, {"--result-json=" + tmp / "there/result"}, {});
  CHECK(run_to_end(under_umask(job, "027")).exit == 0);
  CHECK(mode_of(tmp / "there/result") == 0640);
  CHECK(std::distance(fs::directory_iterator(tmp / "there"), {}) == 1);
}

TEST_CASE("only its owner can enter the run's folder in /tmp") {
  for (const std::string logs : {"--redirects=0", "--tee=3"}) {
    INFO(logs);
    const TempFolder tmp;
    ChildProgram job(under_umask(stub_job(tmp, {logs}, {"wait"}), "000"));
    job.wait_for("waiting ");
    CHECK(mode_of(run_folder_in(tmp.path())) == 0700);
    job.signal(SIGTERM);
    CHECK(job.wait_exit() == 128 + SIGTERM);
  }
  const TempFolder tmp;  // these logs stay when the job has ended
  CHECK(run_to_end(under_umask(stub_job(tmp, {"--redirects=3"}, {}), "000")).exit == 0);
  CHECK(mode_of(run_folder_in(tmp.path())) == 0700);
}

TEST_CASE("a run's folder in --log-dir is as readable as the umask allows") {
  for (const auto& [mask, mode] : {std::pair("022", 0755U), {"027", 0750U}, {"077", 0700U}}) {
    const TempFolder tmp;
    const auto job = stub_job(tmp, {"--log-dir=" + tmp / "logs", "--redirects=3"}, {"print=line"});
    CHECK(run_to_end(under_umask(job, mask)).exit == 0);
    CHECK(mode_of(run_folder_in(tmp / "logs")) == mode);
  }
}

TEST_CASE("a TMPDIR that cannot be used costs one line") {
  const TempFolder tmp;
  ChildOptions job = stub_job(tmp, {}, {"env=RANK"});
  job.set["TMPDIR"] = tmp / "missing";
  const auto run = run_to_end(job);
  CHECK(run.exit == 0);
  CHECK(run.out == "RANK=0\n");
  CHECK(run.err == "ddp-run: cannot create a directory in '" + (tmp / "missing") +
                       "': No such file or directory; using '/tmp'\n");
}

TEST_CASE("temporary files are where Python's tempfile has them: TMPDIR, TEMP, TMP, then /tmp") {
  const TempFolder tmp;
  ChildOptions job = stub_job(tmp, {}, {"env=TORCHELASTIC_ERROR_FILE"});
  job.set["TMPDIR"] = "/sys";  // no file can be created there, by root either
  job.set["TEMP"] = tmp / "missing";
  job.set["TMP"] = tmp.path();
  const auto last = run_to_end(job);
  CHECK(last.exit == 0);
  CHECK_THAT(last.out, Catch::StartsWith("TORCHELASTIC_ERROR_FILE=" + tmp / "ddp-run_"));
  CHECK_THAT(last.err, Catch::StartsWith("ddp-run: cannot create a directory in '/sys': ") &&
                           Catch::EndsWith("; using '" + tmp.path() + "'\n"));
  job.set["TEMP"] = tmp.path();
  job.set["TMP"] = "/sys";
  job.set.erase("TMPDIR");
  job.unset = {"TMPDIR"};
  const auto second = run_to_end(job);
  CHECK_THAT(second.out, Catch::StartsWith("TORCHELASTIC_ERROR_FILE=" + tmp / "ddp-run_"));
  CHECK(second.err.empty());
}

}  // namespace
}  // namespace ddp::test
