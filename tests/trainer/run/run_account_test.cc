// What survives of a job's account over restarts.
#include "trainer/run/run_account.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "launcher/worker_contract.h"
#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
using test::TempDir;

/// An environment variable for the time of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("the time of a sweep's later job begins where the job before it ended") {
  const TempDir dir;
  const auto wall_seconds = [&](const RunAccount& account) {
    account.write_json(dir.file("summary.json"), {"finished"});
    return Json::parse(test::read_file(dir.file("summary.json"))).at("wall_seconds").get<double>();
  };
  std::chrono::steady_clock::time_point begin;
  {
    const RunAccount first("/x/0/s.pt", 0);
    begin = std::chrono::steady_clock::now();
  }
  const RunAccount second("/x/1/s.pt", 0);
  const double seconds = wall_seconds(second);
  const std::chrono::duration<double> measured = std::chrono::steady_clock::now() - begin;
  CHECK(seconds <= measured.count() + 0.005);  // and not since the start of this process
}

TEST_CASE("an attempt knows whether an earlier one of its job ended the run") {
  const TempDir dir, other;
  const std::string summary = dir.file("summary.json");
  {
    const Variable folder(launch::kShmDir, dir.path());
    RunAccount("/x/s.pt", 0, summary).write_json(summary, {"finished"});
    CHECK(RunAccount("/x/s.pt", 6, summary).was_finished());
  }
  const Variable folder(launch::kShmDir, other.path());
  CHECK_FALSE(RunAccount("/x/s.pt", 0, summary).was_finished());
}

TEST_CASE("an account that is full drops its oldest restarts and keeps its sums") {
  const TempDir dir;
  const Variable folder(launch::kShmDir, dir.path());
  constexpr int kAttempts = 40;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Json failure = {{"rank", attempt}, {"cause", std::string(1000, 'x')}, {"time", 1.0}};
    const Variable last_failure(launch::kLastFailure, failure.dump());
    RunAccount account("/x/s.pt", 5);
    account.step_done(6, {});
    account.step_done(7, {});
  }
  RunAccount account("/x/s.pt", 5);
  account.write_json(dir.file("summary.json"), {"finished"});
  const auto summary = Json::parse(test::read_file(dir.file("summary.json")));
  CHECK(summary.at("redone_steps") == 2 * kAttempts);
  REQUIRE(summary.at("restarts").size() > 10);
  CHECK(summary.at("restarts").back().at("cause") == "nodes joined or left");
  const std::size_t last_but_one = summary.at("restarts").size() - 2;
  CHECK(summary.at("restarts")[last_but_one].at("rank") == kAttempts - 1);
}

TEST_CASE("a run that several jobs trained has the account of all of them in the last one's") {
  const TempDir dir;
  const std::string file = dir.file("summary.json");
  const auto end_of = [&](const RunAccount& account) {
    account.write_json(file, {"finished"});
    return Json::parse(test::read_file(file));
  };
  Json first;
  {
    const TempDir shm;
    const Variable folder(launch::kShmDir, shm.path());
    { RunAccount killed("/x/s.pt", 0, file); }
    RunAccount account("/x/s.pt", 0, file);
    account.step_done(1, {});
    account.step_done(2, {});
    first = end_of(account);
    CHECK_FALSE(first.contains("earlier_jobs"));
    // An attempt of the same job that continues from what it saved counts once.
    CHECK_FALSE(end_of(RunAccount("/x/s.pt", 2, file)).contains("earlier_jobs"));
  }
  const Json before = end_of(RunAccount("/y/other.pt", 0, file));  // from scratch: another run
  CHECK_FALSE(before.contains("earlier_jobs"));
  { std::ofstream(file) << first.dump(); }
  Json second = end_of(RunAccount("/x/s.pt", 2, file));
  CHECK(second.at("restarts").empty());
  const Json earlier = second.at("earlier_jobs");
  CHECK(earlier.at("jobs") == 1);
  CHECK(earlier.at("seconds") == first.at("wall_seconds"));
  CHECK(earlier.at("restarts") == 1);
  CHECK(earlier.at("useful_seconds") ==
        first.at("goodput").get<double>() * first.at("wall_seconds").get<double>());
  const RunAccount third("/x/s.pt", 4, file);
  CHECK_THAT(third.text().front(), Catch::Contains("in 3 jobs, 1 restart"));
  CHECK(end_of(third).at("earlier_jobs").at("jobs") == 2);
}

}  // namespace ddp::train
