#include "trainer/metrics/jsonl_sink.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/metrics/text_of.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(path)) steps.push_back(line["step"]);
  return steps;
}

MetricRecord record_of(int64_t step, const std::string& split = "train") {
  return {step, 0.5, split, {{"loss", 2.5}, {"lr", 3e-4}}, 1.7e9};
}

void write_steps(MetricSink& sink, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) sink.write(record_of(step));
}

using Steps = std::vector<int64_t>;

TEST_CASE("a line holds the numbers of a step, in a fixed order") {
  const test::TempFolder folder;
  JsonlSink sink(folder.path());
  sink.begin_after(0);
  sink.write({20, 0.25, "train", {{"loss", 2.5}, {"grad_norm", 1e-7}}, 1732170000.1234});
  sink.write({20, 0.25, "eval", {{"loss", NAN}, {"perplexity", INFINITY}}, 1732170001.0});
  CHECK(
      test::text_of(folder / "metrics.jsonl") ==
      R"({"step":20,"epoch":0.25,"split":"train","loss":2.5,"grad_norm":1e-07,"time":1732170000.123})"
      "\n"
      R"({"step":20,"epoch":0.25,"split":"eval","loss":null,"perplexity":null,"time":1732170001.000})"
      "\n");
}

TEST_CASE("a confusion matrix is a line of its own file, which a resume cuts off as well") {
  const test::TempFolder folder;
  JsonlSink sink(folder.path());
  sink.begin_after(0);
  for (const int64_t step : {10, 20})
    sink.write_confusion({step, "eval", {{"ham", "sp\"am"}, {3, 0, 1, 2}}, 1.7e9});
  const std::string first =
      R"({"step":10,"split":"eval","labels":["ham","sp\"am"],"counts":[[3,0],[1,2]],"time":1700000000.000})"
      "\n";
  CHECK(test::text_of(folder / "confusion.jsonl").starts_with(first));
  CHECK(lines_of(folder / "confusion.jsonl").size() == 2);
  JsonlSink(folder.path()).begin_after(10);
  CHECK(test::text_of(folder / "confusion.jsonl") == first);
}

TEST_CASE("after a resume no step is recorded twice, and the first line says where it went on") {
  const test::TempFolder folder;
  JsonlSink first(folder.path());
  first.begin_after(0);
  write_steps(first, 1, 5);
  first.write(record_of(5, "eval"));
  write_steps(first, 6, 8);
  JsonlSink second(folder.path());
  second.begin_after(5);
  write_steps(second, 6, 7);
  CHECK(steps_of(folder / "metrics.jsonl") == Steps{1, 2, 3, 4, 5, 5, 6, 7});
  const auto lines = lines_of(folder / "metrics.jsonl");
  CHECK(lines[6]["resumed_from"] == 5);
  CHECK_FALSE(lines[7].contains("resumed_from"));
  CHECK_FALSE(lines[0].contains("resumed_from"));
}

TEST_CASE("a rollback takes back the steps that are to be made again") {
  const test::TempFolder folder;
  JsonlSink sink(folder.path());
  sink.begin_after(0);
  write_steps(sink, 1, 5);
  sink.begin_after(3);
  write_steps(sink, 4, 4);
  CHECK(steps_of(folder / "metrics.jsonl") == Steps{1, 2, 3, 4});
}

TEST_CASE("a last line that was torn is cut off, and the lines before it stay") {
  const test::TempFolder folder;
  JsonlSink(folder.path()).begin_after(0);
  {
    JsonlSink sink(folder.path());
    sink.begin_after(0);
    write_steps(sink, 1, 3);
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"step":4,"epo)";
  JsonlSink sink(folder.path());
  sink.begin_after(3);
  write_steps(sink, 4, 4);
  CHECK(steps_of(folder / "metrics.jsonl") == Steps{1, 2, 3, 4});
}

TEST_CASE("lines of another kind stay where they are") {
  const test::TempFolder folder;
  folder.write("metrics.jsonl",
               "# mine\n{\"note\":1}\n{\"split\":\"train\",\"step\":3}\n"
               "{\"split\":\"train\",\"step\":7}\n");
  JsonlSink(folder.path()).begin_after(5);
  CHECK(test::text_of(folder / "metrics.jsonl") ==
        "# mine\n{\"note\":1}\n{\"split\":\"train\",\"step\":3}\n");
}

TEST_CASE("a run that begins anew keeps the numbers of the one before") {
  const test::TempFolder folder;
  JsonlSink first(folder.path());
  first.begin_after(0);
  write_steps(first, 1, 3);
  JsonlSink second(folder.path());
  second.begin_after(0);
  write_steps(second, 1, 1);
  CHECK(steps_of(folder / "metrics.jsonl") == Steps{1});
  CHECK(steps_of(folder / "metrics.jsonl.old") == Steps{1, 2, 3});
}

TEST_CASE("samples have a file of their own, any bytes in them") {
  const test::TempFolder folder;
  JsonlSink first(folder.path());
  first.begin_after(0);
  CHECK_FALSE(std::filesystem::exists(folder / "samples.jsonl"));
  first.write_text({10, "sample", "one\n\"two\" \xFF", 1.0});
  first.write_text({20, "sample", "three", 2.0});
  JsonlSink second(folder.path());
  second.begin_after(10);
  const auto lines = lines_of(folder / "samples.jsonl");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["text"] == "one\n\"two\" \xEF\xBF\xBD");
  CHECK(lines[0]["tag"] == "sample");
}

TEST_CASE("a folder that is not there is one clear line") {
  JsonlSink sink("/nowhere/at/all");
  CHECK_THROWS_AS(sink.begin_after(0), RunError);
  CHECK_THROWS_WITH(sink.write(record_of(1)),
                    "cannot open /nowhere/at/all/metrics.jsonl: No such file or directory");
}

TEST_CASE("a full disk leaves whole lines alone") {
  AppendFile full("/dev/full");
  CHECK_THROWS_WITH(full.append("x\n"), "cannot write /dev/full: No space left on device");
  CHECK(full.size() == 0);
}

}  // namespace
}  // namespace ddp::train
