// What a run records, over kills and resumes.
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

std::vector<Json> records_of(const Workspace& place, const std::string& split) {
  std::vector<Json> records;
  for (const auto& line : lines_of(read_bytes(place / "metrics.jsonl"))) {
    Json record = Json::parse(line);
    if (record.at("split") == split) records.push_back(std::move(record));
  }
  return records;
}

std::vector<int> steps_in(const std::vector<Json>& records) {
  std::vector<int> steps;
  for (const auto& record : records) steps.push_back(record.at("step"));
  return steps;
}

/// What does not depend on when and how fast a step was made.
std::vector<Json> lasting(std::vector<Json> records) {
  for (auto& record : records) {
    for (const char* key : {"time", "tokens_per_second", "memory_bytes", "resumed_from"})
      record.erase(key);
  }
  return records;
}

TEST_CASE("metrics.jsonl holds each step's numbers, and the run's facts stand beside it") {
  const Workspace place;
  const auto run = succeed(launched(place, 2, {"logging_config.peak_tflops=0.1"}));
  const auto train = records_of(place, "train");
  CHECK(steps_in(train) == range_of(1, 40));
  for (const char* key :
       {"loss", "lr", "grad_norm", "tokens_per_second", "mfu", "memory_bytes", "epoch", "time"}) {
    INFO(key);
    CHECK(train.back().at(key).get<double>() > 0.0);
  }
  const auto evaluations = records_of(place, "eval");
  REQUIRE(evaluations.size() == evaluations_of(run.out).size());
  CHECK(evaluations.back().at("perplexity").get<double>() ==
        Approx(std::exp(evaluations.back().at("loss").get<double>())));
  const Json info = Json::parse(read_bytes(place / "run_info.json"));
  CHECK(info.at("environment").at("ranks") == 2);
  CHECK(info.at("config").at("logging_config").at("peak_tflops") == 0.1);
  const Json summary = Json::parse(read_bytes(place / "run_summary.json"));
  CHECK(summary.at("peak_memory_bytes").size() == 2);
  CHECK(summary.at("start_seconds").at("first step").get<double>() > 0.0);
  CHECK_THAT(run.out,
             Contains("Start: ") && Contains(", first step ") && Contains("Memory: peak "));
}

TEST_CASE("a job that was killed three times has recorded each step once, as the unbroken one") {
  const Workspace place;
  const Unbroken unbroken(2);
  const Words faults = {"rank=1 step=13 phase=optimizer kind=kill attempt=0",
                        "rank=0 step=25 phase=writing kind=kill attempt=1",
                        "rank=0 step=30 phase=forward kind=kill attempt=2"};
  const auto run = succeed(launched(place, 2, {"trainer_config.fault_plan=" + Json(faults).dump()},
                                    {"--max_restarts=3"}));
  INFO(run.out << run.err);
  for (const char* split : {"train", "eval"})
    CHECK(lasting(records_of(place, split)) == lasting(records_of(unbroken, split)));
  int restarts = 0;
  for (const auto& record : records_of(place, "train")) restarts += record.contains("resumed_from");
  CHECK(restarts == 3);
}

TEST_CASE(
    "a run that goes on, and one that is started again when it is complete, record no step twice") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=5"}));
  succeed(alone(place, {"trainer_config.max_steps=5"}));
  CHECK(steps_in(records_of(place, "eval")) == std::vector<int>{5});
  succeed(alone(place, {"trainer_config.max_steps=9"}));
  CHECK(steps_in(records_of(place, "train")) == range_of(1, 9));
  CHECK(records_of(place, "train")[5].at("resumed_from") == 5);
}

TEST_CASE("a rollback takes back what was recorded of the steps that are made again") {
  const Workspace place;
  succeed(alone(place, {R"(trainer_config.fault_plan=["step=18 kind=nan"])",
                        "trainer_config.bad_step_policy=rollback", "trainer_config.max_steps=22"}));
  const auto steps = steps_in(records_of(place, "train"));
  CHECK(std::is_sorted(steps.begin(), steps.end()));
  CHECK(std::adjacent_find(steps.begin(), steps.end()) == steps.end());
  CHECK(steps.back() == 22);
}

/// What the program writes to a terminal of its own.
std::string on_terminal(ChildOptions options) {
  int screen = -1, terminal = -1;
  REQUIRE(::openpty(&screen, &terminal, nullptr, nullptr, nullptr) == 0);
  std::string text;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t got; (got = ::read(screen, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
  });
  options.set["TERM"] = "xterm";
  const auto run = finish(in_shell(std::string("exec \"$@\" >") + ::ttyname(terminal), options));
  ::close(terminal);  // the last writer: the reader's end
  reader.join();
  ::close(screen);
  CHECK(run.exit == 0);
  return text;
}

TEST_CASE("a terminal gets a live line and short lines on the setup, also under ddp-run") {
  for (const bool launches : {false, true}) {
    const Workspace place;
    const std::string live = on_terminal(launches ? launched(place, 2) : alone(place));
    INFO(live);
    CHECK_THAT(live, Contains("\r\x1b[2KEpoch ") && Contains("/40 "));
    CHECK_THAT(live, !Contains("Train Loss"));
    CHECK(order_of_steps(log_of(place)) == range_of(1, 40));
    const std::string setup = live.substr(0, live.find("Epoch"));
    CHECK_THAT(setup, Contains("Batch: "));
    CHECK_THAT(log_of(place), Contains(" samples, "));
    for (const auto& line : lines_of(setup)) CHECK(line.size() <= 80);
  }
}

TEST_CASE("a run that is to say nothing says nothing, and its log has it all") {
  const Workspace place;
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=3", "logging_config.progress=off"}));
  CHECK(run.out.empty());
  CHECK(run.err.empty());
  CHECK(order_of_steps(log_of(place)) == range_of(1, 3));
}

TEST_CASE("trainer report writes a page about a run, and says what it lacks") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=5"}));
  const auto page = finish(trainer(place, {"report", ".", "--output", "page.html"}));
  CHECK(page.exit == 0);
  CHECK(page.out == "page.html\n");
  CHECK_THAT(read_bytes(place / "page.html"),
             Contains("\"train/grad_norm\"") && Contains("</html>"));
  const auto missing = finish(trainer(place, {"report", "nowhere"}));
  CHECK(missing.exit == 2);
  CHECK(missing.err == "error: report: nowhere: no such folder; give the folder of a run\n");
  const auto unwritable = finish(trainer(place, {"report", ".", "--output", "no/page.html"}));
  CHECK(unwritable.exit == 1);
  CHECK(errors_of(unwritable.err).size() == 1);
  const auto histograms = finish(alone(place, {"logging_config.histogram_every_steps=5"}));
  CHECK(histograms.exit == 2);
  CHECK_THAT(histograms.err, Contains("add logging_config.tensorboard=true"));
}

}  // namespace
}  // namespace ddp::test
