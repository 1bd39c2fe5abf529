// Messages between agents survive the network unchanged; malformed ones are rejected.
#include "launcher/rendezvous/wire/control_messages.h"

#include <random>

#include "tests/support/catch.h"

#include "launcher/report/job_status.h"

namespace ddp::launch {
namespace {

using std::chrono::milliseconds;

ProcessFailure full_failure() {
  ProcessFailure failure;
  failure.local_rank = 3;
  failure.rank = 11;
  failure.pid = 4711;
  failure.exit = {0, 9};
  failure.last_stderr = "a line\nand \x01\xff one\n";
  failure.cause = "out of memory";
  failure.hang = "silent for 5 s";
  failure.heartbeat = "step=7";
  failure.host = "h3";
  failure.message = "ValueError: \"quoted\"";
  failure.time = 1.5e9;
  failure.lived = milliseconds(1'234);
  return failure;
}

std::vector<ControlMessage> one_of_each() {
  RendezvousInfo info;
  info.restart_count = 2;
  info.epoch = 1LL << 40;
  info.job = "89ab";
  info.group_rank = 1;
  info.group_world_size = 3;
  info.first_rank = 4;
  info.world_size = 9;
  info.first_role_rank = 1;
  info.role_world_size = 5;
  info.master_addr = "fe80::1%eth0";
  info.master_port = 29500;
  return {Hello{.id = "0123",
                .run_id = "job",
                .min_nodes = 1,
                .max_nodes = 4,
                .node_rank = 2,
                .host = "h",
                .address = "10.0.0.1",
                .pid = 7,
                .local_world_size = 8,
                .role = "r",
                .max_restarts = 3,
                .agreed = {{"--restart-policy", "never"}},
                .sort_key = "r7",
                .port = 65535,
                .epoch = 1LL << 40,
                .alone = true,
                .session = "4567",
                .received = 9},
          Join{29501},
          Failed{full_failure()},
          Ended{.failures = {full_failure(), full_failure()}, .stopped = true, .preempted = true},
          Leave{15},
          Leave{.why = "preflight failed"},
          Accepted{3},
          Alive{12},
          Alive{.received = 3, .stacks = true},
          Alive{.received = 3, .asks_status = true},
          Alive{.received = 3, .status = NodeStatus{2, "job x: running\n"}},
          Alive{.received = 12,
                .pace = NodePace{3,
                                 "h",
                                 0.5,
                                 {{"forward", 9, {0.25, 0.2}, {0.125, 0.1}, 7},
                                  {"data", 8, {1, 0.5}, {}, 0}}},
                .straggler = Straggler{9, 3, "h", "forward", 0.25, 0.125},
                .partly_done = PartlyDone{"nodes 0, 2", true}},
          Status{"89", "job", 4, true, "10.0.0.3", 1234},
          Welcome{5, milliseconds(2'000), milliseconds(4'000), "4567", true, 8},
          Refused{"because"},
          Note{"text"},
          Round{.info = info,
                .successors = {{2, "10.0.0.2", 5002, "4567"}, {3, "::1", 0}},
                .tally = {{-1, {1, 0}, milliseconds(5), "step=1"}, 4, 3, 2},
                .changes = 5},
          Go{3},
          Standby{Round{.info = info, .successors = {{2, "10.0.0.2", 5002}}}},
          Stop{true, "others leave"},
          Verdict{.over = true,
                  .outcome = Outcome::kPreempted,
                  .verdict = {true, 2, milliseconds(500), "gave up"},
                  .text = "text",
                  .failures = {full_failure()}}};
}

TEST_CASE("every message comes out as it went in") {
  for (const ControlMessage& message : one_of_each()) {
    const std::string text = to_json_text(message);
    const auto parsed = parse_control_message(text);
    INFO(text);
    REQUIRE(parsed);
    CHECK(parsed->index() == message.index());
    CHECK(to_json_text(*parsed) == text);  // invalid UTF-8 was replaced the first time
  }
}

TEST_CASE("a failure keeps what a report shows of it") {
  const auto parsed = parse_control_message(to_json_text(Failed{full_failure()}));
  REQUIRE(parsed);
  const ProcessFailure got = std::get<Failed>(*parsed).failure;
  CHECK((got.local_rank == 3 && got.rank == 11 && got.pid == 4711 && got.exit.signal == 9));
  CHECK(got.cause == "out of memory");
  CHECK(got.hang == "silent for 5 s");
  CHECK(got.message == "ValueError: \"quoted\"");
  CHECK(got.lived == milliseconds(1'234));
  CHECK(got.last_stderr == "a line\nand ?\xef\xbf\xbd one\n");
}

TEST_CASE("long texts and lists are cut to what a frame and a report hold") {
  ProcessFailure failure = full_failure();
  const std::string nasty(100'000, '\xff');  // three bytes each once replaced
  failure.last_stderr = failure.cause = failure.hang = failure.heartbeat = failure.host =
      failure.message = nasty;
  const Ended ended{.failures = std::vector<ProcessFailure>(100, failure)};
  const std::string text = to_json_text(ended);
  CHECK(text.size() <= (1 << 20));
  const auto parsed = parse_control_message(text);
  REQUIRE(parsed);
  CHECK(std::get<Ended>(*parsed).failures.size() < 10);
  failure.last_stderr = failure.cause = failure.hang = failure.message = std::string(9'000, '\x01');
  CHECK(to_json_text(Ended{.failures = {8, failure}}).size() <= (1 << 20));
}

TEST_CASE("the table of a node with many ranks keeps its head and its first rows") {
  JobStatus job{.run_id = "x", .workers = std::vector<WorkerStatus>(64)};
  for (WorkerStatus& worker : job.workers) worker.heartbeat = std::string(100, 'x');
  for (const char* end : {"x\n", " more ranks\n"}) {
    const std::string table = status_table(job, kLongestTable);
    const auto parsed = parse_control_message(to_json_text(Alive{.status = NodeStatus{2, table}}));
    REQUIRE(parsed);
    CHECK(std::get<Alive>(*parsed).status->table == table);
    CHECK((table.starts_with("job x: ") && table.ends_with(end)));
    job.workers.resize(640, job.workers[0]);
  }
}

TEST_CASE("the end of a long text is what is kept") {
  Note note{std::string(10'000, 'x') + "the end"};
  const auto parsed = parse_control_message(to_json_text(note));
  REQUIRE(parsed);
  CHECK(std::get<Note>(*parsed).text.ends_with("the end"));
}

TEST_CASE("what is malformed is no message") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"), std::string("7"),
        std::string("{\"type\":7}"), std::string("{\"type\":\"unknown\"}"),
        std::string("{\"type\":\"join\"}"), std::string("{\"type\":\"join\",\"port\":65536}"),
        std::string("{\"type\":\"join\",\"port\":-1}"),
        std::string("{\"type\":\"join\",\"port\":1.0}"),
        std::string("{\"type\":\"join\",\"port\":18446744073709551615}"),
        std::string("{\"type\":\"leave\",\"signal\":65}"), std::string("{\"type\":\"alive\""),
        std::string("{\"type\":\"note\",\"text\":[]}"), std::string("\xff\xfe"), deep,
        "{\"type\":" + deep + "}",
        "{\"type\":\"note\",\"text\":\"" + std::string(1 << 19, 'x') + "\"}"}) {
    INFO(text.substr(0, 80));
    CHECK_FALSE(parse_control_message(text));
  }
}

TEST_CASE("a message with any byte changed or missing is parsed or refused, and never throws") {
  std::mt19937 random(7);
  for (const ControlMessage& message : one_of_each()) {
    const std::string text = to_json_text(message);
    for (std::size_t size = 0; size < text.size(); ++size)
      CHECK_FALSE(parse_control_message(text.substr(0, size)));
    for (int i = 0; i < 500; ++i) {
      std::string other = text;
      other[random() % other.size()] = static_cast<char>(random());
      if (const auto parsed = parse_control_message(other)) {
        CHECK(parse_control_message(to_json_text(*parsed)));
      }
    }
  }
}

}  // namespace
}  // namespace ddp::launch
