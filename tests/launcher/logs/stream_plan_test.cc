#include "launcher/logs/stream_plan.h"

#include <fcntl.h>
#include <stdlib.h>

#include "launcher/base/system/descriptors.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

StreamPlace place() {
  StreamPlace here;
  here.worker.role = "default";
  here.worker.host = "node7.example.org";
  here.worker.local_rank = 1;
  here.worker.rank = 5;
  here.folder = "/logs/attempt_0/1";
  here.attempt_folder = "/logs/attempt_0";
  return here;
}

std::string prefix(const StreamPlan& plan) {
  std::string text;
  plan.prefix.append_to(text, {{1}}, {});
  return text;
}

TEST_CASE("by default both streams are copied to the console, byte for byte") {
  const auto streams = plan_streams({}, place());
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK(streams.out.console);
  CHECK_FALSE(streams.out.by_line);
  CHECK(streams.out.file.empty());
  CHECK(streams.err.mode == StreamMode::kPump);
  CHECK(streams.err.console);
  CHECK_FALSE(streams.err.by_line);
  CHECK(streams.err.file.empty());
}

TEST_CASE("a stdout that workers can share is inherited") {
  LogOptions options;
  options.own_stdout = true;
  CHECK(plan_streams(options, place()).out.mode == StreamMode::kInherit);
}

TEST_CASE("workers share a device, but no file, pipe or terminal") {
  const test::TempFolder folder;
  const Descriptor file(::open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  CHECK_FALSE(can_share_stdout(file.get()));
  const Descriptor null = open_null_device(O_WRONLY);
  CHECK(can_share_stdout(null.get()));
  const PipeEnds ends = open_pipe("test");
  CHECK_FALSE(can_share_stdout(ends.write.get()));
  const Descriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  CHECK_FALSE(can_share_stdout(terminal.get()));
}

TEST_CASE("without report lines stderr is inherited") {
  LogOptions options;
  options.report_lines = 0;
  CHECK(plan_streams(options, place()).err.mode == StreamMode::kInherit);
}

TEST_CASE("all output that --hang-timeout watches passes through ddp-run") {
  LogOptions options;
  options.watched = true;
  options.report_lines = 0;
  options.console_ranks = {0};
  const auto hidden = plan_streams(options, place());
  CHECK(hidden.out.mode == StreamMode::kPump);
  CHECK_FALSE(hidden.out.console);
  CHECK(hidden.err.mode == StreamMode::kPump);
  options.redirects.all = 3;
  CHECK(plan_streams(options, place()).out.mode == StreamMode::kPump);
  CHECK(plan_streams(options, place()).out.file == "/logs/attempt_0/1/stdout.log");
}

TEST_CASE("a redirected stream goes straight into its file") {
  LogOptions options;
  options.redirects.by_rank[1] = 3;
  const auto streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kFile);
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
  CHECK(streams.err.file == "/logs/attempt_0/1/stderr.log");
}

TEST_CASE("a teed stream goes to its file and, prefixed, to the console") {
  LogOptions options;
  options.tee.all = 1;
  options.redirects.all = 3;
  const auto streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK(streams.out.console);
  CHECK(streams.out.by_line);
  CHECK(prefix(streams.out) == "[default1]:");
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
  CHECK(streams.err.mode == StreamMode::kFile);
}

TEST_CASE(
    "the prefix template knows role, ranks and short host name, and keeps what it does not know") {
  LogOptions options;
  options.tee.all = 1;
  options.prefix_template = "${hostname}:${rank}/${local_rank} ${role_name} ${what} ";
  CHECK(prefix(plan_streams(options, place()).out) == "node7:5/1 default ${what} ");
}

TEST_CASE("ranks that are filtered out do not reach the console") {
  LogOptions options;
  options.console_ranks = {0};
  auto streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kDiscard);
  CHECK(streams.err.mode == StreamMode::kPump);
  CHECK_FALSE(streams.err.console);
  options.tee.all = 3;
  options.stdout_filters = {"needle"};
  streams = plan_streams(options, place());
  CHECK_FALSE(streams.out.console);
  CHECK(streams.out.filter_file.empty());
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
}

TEST_CASE("filters need no --tee: the console stays as it is, the file gets lines with a prefix") {
  LogOptions options;
  options.stdout_filters = {"needle"};
  auto streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK_FALSE(streams.out.by_line);
  CHECK(streams.out.filter_file == "/logs/attempt_0/filtered_stdout.log");
  CHECK(prefix(streams.out) == "[default1]:");
  CHECK(streams.err.filter_file.empty());
  options.redirects.all = 1;
  streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK_FALSE(streams.out.console);
  CHECK(streams.out.filter_file == "/logs/attempt_0/filtered_stdout.log");
}

TEST_CASE("without a folder teed lines reach the console alone, and nothing is redirected") {
  StreamPlace nowhere = place();
  nowhere.folder = nowhere.attempt_folder = "";
  LogOptions options;
  options.tee.all = 1;
  options.redirects.all = 3;
  options.stdout_filters = {"needle"};
  const auto streams = plan_streams(options, nowhere);
  CHECK(streams.out.by_line);
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK((streams.out.file + streams.out.filter_file).empty());
  CHECK(streams.err.mode == StreamMode::kPump);
  CHECK(streams.err.console);
  CHECK(streams.err.file.empty());
}

TEST_CASE("folding takes lines, of streams that reach the console") {
  LogOptions options;
  options.fold = std::chrono::milliseconds(5);
  options.redirects.all = 2;
  const auto streams = plan_streams(options, place());
  CHECK(streams.out.mode == StreamMode::kPump);
  CHECK(streams.out.by_line);
  CHECK(streams.out.fold == options.fold);
  CHECK(streams.out.file.empty());
  CHECK(streams.err.mode == StreamMode::kFile);
}

TEST_CASE("the time is in the prefix where the template asks for it") {
  LogOptions options;
  options.tee.all = 3;
  CHECK_FALSE(plan_streams(options, place()).out.prefix.has_time());
  options.prefix_template = "${rank} $time ";
  CHECK(plan_streams(options, place()).out.prefix.has_time());
}

TEST_CASE("a redirected stream that is rotated is copied") {
  LogOptions options;
  options.redirects.all = 1;
  options.rotation.max_bytes = 4096;
  const auto plan = plan_streams(options, place()).out;
  CHECK(plan.mode == StreamMode::kPump);
  CHECK_FALSE(plan.console);
  CHECK_FALSE(plan.by_line);
  CHECK(plan.rotation.max_bytes == 4096);
}

}  // namespace
}  // namespace ddp::launch
