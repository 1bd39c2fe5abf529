// The folder in memory: there over restarts, gone with the job, and nobody else's ever touched.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include "tests/support/catch.h"

#include "launcher/plan/memory_folder.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using launch::MemoryFolder;
using Lines = std::vector<std::string>;

// A process that dies without removing what it has made; its path.
std::string leave_folder(const std::string& place) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const MemoryFolder folder(place);
    [[maybe_unused]] const auto told = ::write(ends[1], folder.path().data(), folder.path().size());
    ::_exit(0);
  }
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  char text[4096];
  const auto got = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

TEST_CASE("a folder in memory is its user's alone, and goes with all that is in it") {
  const TempFolder place;
  const MemoryFolder folder(place.path());
  CHECK_THAT(folder.path(), Catch::StartsWith(place / "ddp-run-"));
  struct stat status {};
  REQUIRE(::stat(folder.path().c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  fs::create_directories(folder.path() + "/deep/er");
  folder.remove();
  CHECK(fs::is_empty(place.path()));
}

TEST_CASE("without a writable place there is no folder in memory") {
  CHECK(MemoryFolder("/no/such/place").path().empty());
  CHECK(MemoryFolder("/dev/null").path().empty());
}

TEST_CASE("what a dead job has left goes at the next start, a living job's folder stays") {
  const TempFolder place;
  const std::string dead = leave_folder(place.path());
  REQUIRE(fs::exists(dead));
  std::ofstream(dead + "/state") << "gigabytes";
  const TempFolder elsewhere;
  elsewhere.write("kept", "");
  fs::create_symlink(elsewhere.path(), dead + "/link");
  const MemoryFolder alive(place.path());
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(elsewhere / "kept"));
  const MemoryFolder next(place.path());
  CHECK(fs::exists(alive.path()));
}

TEST_CASE("an empty folder whose job died before it could mark it goes at the next start") {
  const TempFolder place;
  fs::create_directory(place / "ddp-run-abcdef");
  ::chmod((place / "ddp-run-abcdef").c_str(), 0700);
  const MemoryFolder folder(place.path());
  CHECK_FALSE(fs::exists(place / "ddp-run-abcdef"));
}

TEST_CASE("jobs that start at the same time each keep their folder in memory") {
  const TempFolder place;
  std::vector<std::thread> starts;
  std::atomic<int> kept = 0;
  for (int thread = 0; thread < 4; ++thread) {
    starts.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const MemoryFolder folder(place.path());
        if (!folder.path().empty() && fs::exists(folder.path())) ++kept;
        folder.remove();
      }
    });
  }
  for (std::thread& start : starts) start.join();
  CHECK(kept == 400);
}

TEST_CASE("a folder that is not provably a dead job's of this user stays") {
  const TempFolder place;
  place.write("ddp-run-byhand/file", "");
  ::chmod((place / "ddp-run-byhand").c_str(), 0700);
  place.write("ddp-run-afile", "");
  const TempFolder elsewhere;  // marked and unlocked, but reached by a link
  const std::string dead = leave_folder(elsewhere.path());
  fs::create_symlink(dead, place / "ddp-run-link");
  const std::string open_to_all = leave_folder(place.path());
  ::chmod(open_to_all.c_str(), 0777);
  const MemoryFolder folder(place.path());
  CHECK(fs::exists(place / "ddp-run-byhand/file"));
  CHECK(fs::exists(place / "ddp-run-afile"));
  CHECK(fs::exists(dead));
  CHECK(fs::exists(open_to_all));
}

std::string folder_of(ChildProgram& job) {
  return job.wait_for("DDP_SHM_DIR=").substr(std::string("DDP_SHM_DIR=").size());
}

const Lines kSaveAndWait{"shm=weights", "env=DDP_SHM_DIR", "parent", "wait"};

TEST_CASE("the folder in memory outlives a restart and ends with the job") {
  const TempFolder tmp;
  ChildProgram job(
      stub_job(tmp, {"--max-restarts=1"},
               {"#0shm=weights", "#0exit=3", "env=DDP_SHM_DIR", "env=DDP_LAST_FAILURE", "wait"}));
  const std::string folder = folder_of(job);
  job.wait_for("waiting");
  CHECK(text_of(folder + "/state-of-0") == "weights");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK_FALSE(fs::exists(folder));
  const auto at = job.out().find("DDP_LAST_FAILURE=") + 17;
  const auto last = nlohmann::json::parse(job.out().substr(at, job.out().find('\n', at) - at));
  CHECK(last["rank"] == 0);
  CHECK(last["cause"] == "exit code 3");
  CHECK(last["attempt"] == 0);
  CHECK(last["time"].get<double>() > 1.7e9);
}

TEST_CASE("the folder in memory goes when all workers are done") {
  const TempFolder tmp;
  const auto job = run_to_end(stub_job(tmp, {}, {"shm=x", "env=DDP_SHM_DIR"}));
  CHECK(job.exit == 0);
  CHECK_THAT(job.out, Catch::StartsWith("DDP_SHM_DIR=/dev/shm/ddp-run-"));
  CHECK_FALSE(fs::exists(job.out.substr(12, job.out.size() - 13)));
}

TEST_CASE("the folder in memory goes when ddp-run or its agent gets SIGKILL") {
  const bool agent = GENERATE(false, true);
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, kSaveAndWait));
  const std::string folder = folder_of(job);
  const pid_t parent = agent_of(job);
  job.wait_for("waiting");
  CHECK(fs::exists(folder + "/state-of-0"));
  ::kill(agent ? parent : job.pid(), SIGKILL);
  job.wait_all_gone();
  job.wait_exit();
  CHECK_FALSE(fs::exists(folder));
}

TEST_CASE("what both processes of a job leave behind, killed at once, goes at the next start") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, kSaveAndWait));
  const std::string folder = folder_of(job);
  const pid_t agent = agent_of(job);
  job.wait_for("waiting");
  for (const int signal : {SIGSTOP, SIGKILL}) {
    job.signal(signal);
    ::kill(agent, signal);
  }
  job.wait_all_gone();
  CHECK(run_to_end(stub_job(tmp, {}, {})).exit == 0);
  CHECK_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace ddp::test
