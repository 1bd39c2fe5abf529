#include "launcher/stream_plan.h"

#include <catch2/catch.hpp>

namespace ddp::launch {
namespace {

const StreamPlace kPlace{"default", "node7.example.org", 1,
                         5,         "/logs/attempt_0/1", "/logs/attempt_0"};

TEST_CASE("by default stdout is inherited and stderr is copied for the report") {
  const auto streams = plan_streams({}, kPlace);
  CHECK(streams.out.mode == StreamMode::Inherit);
  CHECK(streams.err.mode == StreamMode::Pump);
  CHECK(streams.err.console);
  CHECK_FALSE(streams.err.by_line);
  CHECK(streams.err.file.empty());
}

TEST_CASE("without report lines stderr is inherited, too") {
  LogOptions options;
  options.report_lines = 0;
  CHECK(plan_streams(options, kPlace).err.mode == StreamMode::Inherit);
}

TEST_CASE("a redirected stream goes straight into its file") {
  LogOptions options;
  options.redirects.by_rank[1] = 3;
  const auto streams = plan_streams(options, kPlace);
  CHECK(streams.out.mode == StreamMode::File);
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
  CHECK(streams.err.file == "/logs/attempt_0/1/stderr.log");
}

TEST_CASE("a teed stream goes to its file and, prefixed, to the console") {
  LogOptions options;
  options.tee.all = 1;
  options.redirects.all = 3;
  const auto streams = plan_streams(options, kPlace);
  CHECK(streams.out.mode == StreamMode::Pump);
  CHECK(streams.out.console);
  CHECK(streams.out.by_line);
  CHECK(streams.out.prefix == "[default1]:");
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
  CHECK(streams.err.mode == StreamMode::File);
}

TEST_CASE(
    "the prefix template knows role, ranks and short host name, and keeps what it does not know") {
  LogOptions options;
  options.tee.all = 1;
  options.prefix_template = "${hostname}:${rank}/${local_rank} ${role_name} ${what} ";
  CHECK(plan_streams(options, kPlace).out.prefix == "node7:5/1 default ${what} ");
}

TEST_CASE("ranks that are filtered out do not reach the console") {
  LogOptions options;
  options.console_ranks = {0};
  auto streams = plan_streams(options, kPlace);
  CHECK(streams.out.mode == StreamMode::Discard);
  CHECK(streams.err.mode == StreamMode::Pump);
  CHECK_FALSE(streams.err.console);
  options.tee.all = 3;
  streams = plan_streams(options, kPlace);
  CHECK_FALSE(streams.out.console);
  CHECK(streams.out.file == "/logs/attempt_0/1/stdout.log");
}

}  // namespace
}  // namespace ddp::launch
