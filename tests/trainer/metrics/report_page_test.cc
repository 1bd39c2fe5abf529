// What the page holds. A browser opens it in tests/peers/test_report.py.
#include "trainer/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Catch::Contains;

Series noisy(std::size_t size) {
  Series series;
  for (std::size_t i = 0; i < size; ++i) {
    const auto x = static_cast<double>(i);
    series.add(static_cast<int64_t>(10 * i), std::sin(0.01 * x) + 0.1 * std::sin(7.3 * x));
  }
  return series;
}

TEST_CASE("a thinned curve keeps its ends, its extremes and real points") {
  Series series = noisy(10'000);
  series.values[5003] = 40.0;
  series.values[7001] = -40.0;
  series.values[2222] = NAN;
  const Series thin = thinned(series, 500);
  CHECK(thin.size() <= 500);
  CHECK(thin.size() >= 400);
  CHECK(thin.steps.front() == 0);
  CHECK(thin.steps.back() == 99'990);
  CHECK(*std::max_element(thin.values.begin(), thin.values.end()) == 40.0);
  CHECK(*std::min_element(thin.values.begin(), thin.values.end()) == -40.0);
  CHECK(std::count_if(thin.values.begin(), thin.values.end(),
                      [](double value) { return std::isnan(value); }) == 1);
  for (std::size_t i = 0; i < thin.size(); ++i) {
    const double was = series.values[static_cast<std::size_t>(thin.steps[i] / 10)];
    CHECK((thin.values[i] == was || std::isnan(was)));
  }
  CHECK(thinned(noisy(500), 500).size() == 500);
}

TEST_CASE("steps and values are packed as the page unpacks them") {
  Series series;
  series.add(1, 1.0);
  series.add(300, -2.5);
  CHECK(packed_steps(series) == "AasC");           // 01 AB 02
  CHECK(packed_values(series) == "AACAPwAAIMA=");  // 00 00 80 3F 00 00 20 C0
  CHECK(packed_steps({}).empty());
}

TEST_CASE("short series leave their room to long ones") {
  CHECK(fair_size({10, 10, 1000, 5000}, 1020) == 500);
  CHECK(fair_size({10, 20}, 1000) == 20);
  CHECK(fair_size({}, 1000) == 1000);
}

RunData run_with(const std::string& name) {
  RunData run;
  run.name = run.folder = name;
  run.info_json = run.summary_json = "{}";
  return run;
}

TEST_CASE("a page about 100,000 steps in six curves stays below 1 MB") {
  RunData run = run_with("long");
  for (const char* name : {"loss", "lr", "grad_norm", "tokens_per_second", "memory_bytes", "mfu"})
    run.series[fmt::format("train/{}", name)] = noisy(100'000);
  run.series["eval/loss"] = noisy(100);
  CHECK(report_page({run}, 0.0, "test").size() < 1'000'000);
  CHECK(report_page(std::vector<RunData>(5, run), 0.0, "test").size() < 1'000'000);
}

/// A step of `passes` named forward and backward, each with its begin and end.
std::string trace_of(int64_t step, const std::vector<std::tuple<const char*, int, int>>& passes) {
  std::string events = fmt::format(
      R"({{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","ts":1000,"dur":100}})", step);
  for (const auto& [name, begin, end] : passes)
    events += fmt::format(R"(,{{"ph":"X","cat":"user_annotation","name":"{}","ts":{},"dur":{}}})",
                          name, begin, end - begin);
  events += R"(,{"ph":"X","cat":"cpu_op","name":"forward","ts":1001,"dur":2},{"name":"forward"})";
  return fmt::format(R"({{"traceEvents":[{}]}})", events);
}

TEST_CASE("a page draws the passes of a profiled pipeline, and nothing without all its traces") {
  const test::TempFolder folder;
  const std::string config = R"({"distributed_config":{"pipeline":2,"tensor":2}})";
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  write("profile_rank_0.json",
        trace_of(7, {{"forward", 1010, 1020}, {"backward", 1040, 1050}, {"forward", 990, 1005}}));
  CHECK(read_pipeline_trace(folder.path(), config).ranks.empty());
  write("profile_rank_2.json", trace_of(7, {{"backward", 1030, 1040}, {"forward", 1020, 1030}}));
  const PipelineTrace trace = read_pipeline_trace(folder.path(), config);
  CHECK(trace.step == 7);
  REQUIRE(trace.ranks.size() == 2);
  REQUIRE(trace.ranks[0].size() == 2);
  CHECK(trace.ranks[0][0].begin_us == 0.0);
  CHECK(trace.ranks[0][1].kind == TracedKind::kBackward);
  CHECK(trace.ranks[0][1].end_us == 40.0);
  CHECK(trace.ranks[1][0].kind == TracedKind::kForward);
  CHECK(idle_share(trace, 0) == 0.5);
  CHECK(read_pipeline_trace(folder.path(), "{}").ranks.empty());
  RunData run = run_with("stages");
  CHECK_THAT(report_page({run}, 0.0, "test"), Contains(R"("pipeline":null)"));
  run.pipeline = trace;
  CHECK_THAT(
      report_page({run}, 0.0, "test"),
      Contains(R"("pipeline":{"step":7,"ranks":[{"idle":0.5,"passes":[[0,0,10],[1,30,40]]})"));
  write("profile_rank_2.json", "no trace");
  CHECK(read_pipeline_trace(folder.path(), config).ranks.empty());
}

TEST_CASE("of many classes a page holds those with the most mistakes, and stays small") {
  RunData run = run_with("classes");
  ConfusionMatrix matrix;
  for (std::size_t i = 0; i < kMostConfusionClasses; ++i)
    matrix.labels.push_back(fmt::format("class {} {}", i, std::string(1000, 'x')));
  matrix.counts.assign(matrix.size() * matrix.size(), 1);
  run.confusions["eval"] = {10, "eval", matrix, 0.0};
  const std::string page = report_page({run}, 0.0, "test");
  CHECK(page.size() < 100'000);
  CHECK_THAT(page, Contains(R"("classes":256)") && Contains("226 others"));
}

TEST_CASE("foreign text cannot end the element that it stands in") {
  RunData run = run_with("</script><script>alert(1)</script>");
  run.samples.push_back({1, "sample", "<!-- </SCRIPT> \xFF", 0.0});
  const std::string page = report_page({run}, 0.0, "test");
  CHECK_THAT(page, !Contains("</script><script>alert"));
  CHECK_THAT(page, !Contains("<!-- </SCRIPT>"));
  CHECK_THAT(page, Contains(R"(\u003c/script>\u003cscript>alert(1))"));
}

TEST_CASE("a page names no other place to load anything from") {
  const std::string page = report_page({run_with("r")}, 0.0, "test");
  for (const char* other : {"http://", "https://", "src=", "@import", "url(", "fetch("})
    CHECK_THAT(page, !Contains(other));
}

TEST_CASE("a folder is read although lines are torn or of another kind") {
  const test::TempFolder folder;
  folder.write("metrics.jsonl",
               R"({"step":10,"epoch":1,"split":"train","loss":2.5,"time":5})"
               "\nnonsense\n{\"step\":11}\n[1]\n"
               R"({"step":20,"split":"train","loss":null,"resumed_from":15,"time":9})"
               "\n{\"step\":30,\"spl");
  const RunData run = read_run(folder.path(), 5);
  CHECK(run.series.at("train/loss").steps == std::vector<int64_t>{10, 20});
  CHECK(std::isnan(run.series.at("train/loss").values[1]));
  CHECK(run.series.size() == 1);
  CHECK(run.resumed == std::vector<int64_t>{15});
  CHECK(run.first_time == 5.0);
  CHECK(run.last_time == 9.0);
  CHECK(run.info_json == "{}");
}

TEST_CASE("a folder that is none of a run is one clear line") {
  const test::TempFolder folder;
  CHECK_THROWS_WITH(read_run(folder / "no", 5),
                    Contains("no such folder; give the folder of a run"));
  CHECK_THROWS_WITH(read_run(folder.path(), 5), Contains("no metrics.jsonl in this folder") &&
                                                    Contains("logging_config.jsonl"));
}

}  // namespace
}  // namespace ddp::train
