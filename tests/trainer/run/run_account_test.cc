// What survives of a job's account over restarts.
#include "trainer/run/run_account.h"

#include <chrono>
#include <cstdlib>
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
  { const RunAccount first("/x/0/s.pt", 0); }
  const auto begin = std::chrono::steady_clock::now();
  const RunAccount second("/x/1/s.pt", 0);
  const double seconds = wall_seconds(second);
  const std::chrono::duration<double> measured = std::chrono::steady_clock::now() - begin;
  CHECK(seconds <= measured.count() + 0.005);  // and not since the start of this process
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

}  // namespace ddp::train
