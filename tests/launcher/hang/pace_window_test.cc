// Which rank the others wait for: tables of times, without processes and without a clock.
#include "launcher/hang/pace_window.h"

#include <cmath>
#include <random>

#include "launcher/agent/pace_monitor.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/rendezvous/round/straggler_watch.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using std::chrono::seconds;
using Seconds = std::vector<double>;

// ---- heartbeats -------------------------------------------------------------------------------

TEST_CASE("a heartbeat's phase times are parsed, and are no part of its text") {
  const auto sign = parse_heartbeat("step=3 times=data:0.002,forward:1e-1 phase=backward");
  REQUIRE(sign.times.size() == 2);
  CHECK(sign.times[0].phase == "data");
  CHECK(sign.times[0].seconds == 0.002);
  CHECK(sign.times[1].phase == "forward");
  CHECK(sign.times[1].seconds == 0.1);
  CHECK(sign.text == "step=3 phase=backward");
}

TEST_CASE("malformed phase times count as text") {
  for (const std::string times :
       {"", "forward", "forward:", ":1", "forward:x", "forward:-1", "forward:nan", "forward:inf",
        "forward:1e9", "a:1,b:2,c:3,d:4,e:5", "a:1,,b:2", "a:1,b",
        "a-name-of-more-than-thirty-two-characters:1"}) {
    INFO(times);
    const auto sign = parse_heartbeat("step=3 times=" + times);
    CHECK(sign.times.empty());
    CHECK(sign.text == "step=3 times=" + times);
  }
}

// ---- one node ---------------------------------------------------------------------------------

TEST_CASE("the 95th percentile leaves out a single outlier") {
  CHECK(percentile_95({1}) == 1);
  CHECK(percentile_95({1, 9}) == 1);
  CHECK(percentile_95({9, 1, 2, 3, 4}) == 4);
  Seconds hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  CHECK(percentile_95(hundred) == 95);
}

// One reading a second for `length` seconds; a step takes 0.5 s.
NodePace paced(const std::vector<Seconds>& forward_by_rank, int length) {
  PaceWindow window;
  const Clock::time_point start{seconds(1'000)};
  for (int i = 0; i <= length; ++i) {
    for (std::size_t rank = 0; rank < forward_by_rank.size(); ++rank) {
      const Seconds& times = forward_by_rank[rank];
      window.add(static_cast<int>(rank), 2 * i,
                 {{"data", 0.001}, {"forward", times[static_cast<std::size_t>(i) % times.size()]}},
                 start + seconds(i));
    }
  }
  return window.pace(start + seconds(length));
}

TEST_CASE("a node tells its slowest rank of each phase, and the median of its others") {
  const NodePace pace = paced({{0.1}, {0.4}, {0.2}, {0.3}}, 31);
  CHECK(pace.step_seconds == Approx(0.5));
  REQUIRE(pace.phases.size() == 2);
  CHECK(pace.phases[1].phase == "forward");
  CHECK(pace.phases[1].slowest_rank == 1);
  CHECK(pace.phases[1].slowest.p95 == 0.4);
  CHECK(pace.phases[1].others.p95 == 0.2);
  CHECK(pace.phases[1].other_ranks == 3);
}

TEST_CASE(
    "nothing is told before 30 s, of few steps, of a rank that stands still, or of no times") {
  CHECK(paced({{0.1}, {0.4}}, 29).phases.empty());
  CHECK_FALSE(paced({{0.1}, {0.4}}, 30).phases.empty());
  PaceWindow window;
  const Clock::time_point start{seconds(1'000)};
  for (int i = 0; i < 40; ++i) window.add(0, i / 10, {{"forward", 0.1}}, start + seconds(i));
  CHECK(window.pace(start + seconds(40)).phases.empty());
  for (int i = 0; i < 40; ++i) window.add(0, 4 + i, {{"forward", 0.1}}, start + seconds(40 + i));
  CHECK_FALSE(window.pace(start + seconds(80)).phases.empty());
  CHECK(window.pace(start + seconds(120)).phases.empty());
  PaceWindow without_times;
  for (int i = 0; i < 40; ++i) without_times.add(0, i, {}, start + seconds(i));
  CHECK(without_times.pace(start + seconds(40)).phases.empty());
}

TEST_CASE("what was before the window does not count") {
  Seconds slow_at_first(31, 0.9);
  slow_at_first.resize(62, 0.1);
  CHECK(paced({{0.1}, slow_at_first}, 61).phases[1].slowest.p95 == 0.1);
}

// ---- all nodes --------------------------------------------------------------------------------

NodePace node_of(int node, double slowest, double others, int other_ranks, double step = 1) {
  return {.node = node,
          .host = std::string("h").append(std::to_string(node)),
          .step_seconds = step,
          .phases = {{"forward", 8 * node + 1, {slowest, slowest}, {others, others}, other_ranks}}};
}

TEST_CASE("a rank is a straggler if it takes 1.5 times as long and that is felt") {
  struct Row {
    const char* what;
    std::vector<NodePace> nodes;
    int straggler;  // -1: none
  };
  const std::vector<Row> rows{
      {"no node", {}, -1},
      {"one rank has nobody to be compared with", {node_of(0, 9, 0, 0)}, -1},
      {"two ranks of a node", {node_of(0, 0.31, 0.2, 1)}, 1},
      {"a little faster", {node_of(0, 0.299, 0.2, 1)}, -1},
      {"much slower, but in a small part of the step", {node_of(0, 0.003, 0.001, 7)}, -1},
      {"no time at all", {node_of(0, 0, 0, 7)}, -1},
      {"one rank on each node", {node_of(0, 0.2, 0, 0), node_of(1, 0.9, 0, 0)}, 9},
      {"even nodes", {node_of(0, 0.22, 0.2, 7), node_of(1, 0.23, 0.2, 7)}, -1},
      {"a whole node is slow",
       {node_of(0, 0.2, 0.2, 7), node_of(1, 0.5, 0.45, 7), node_of(2, 0.2, 0.2, 7)},
       9},
      {"the slowest of two", {node_of(0, 0.5, 0.2, 7), node_of(1, 0.7, 0.2, 7)}, 9},
      {"a node that knows nothing", {node_of(0, 0.5, 0.2, 7), NodePace{}}, 1},
      {"most ranks are slow: none of them is named",
       {node_of(0, 0.5, 0.5, 4), node_of(1, 0.2, 0.2, 2)},
       -1},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const auto found = find_straggler(row.nodes);
    CHECK((found ? found->rank : -1) == row.straggler);
    if (found) CHECK(found->host == std::string("h").append(std::to_string(found->node)));
  }
}

TEST_CASE("of several phases the one that costs most is named") {
  NodePace node = node_of(0, 0.5, 0.2, 7);
  node.phases.push_back({"data", 6, {0.9, 0.9}, {0.01, 0.01}, 7});
  const auto found = find_straggler({node});
  REQUIRE(found);
  CHECK(found->phase == "data");
  CHECK(found->rank == 6);
  CHECK(straggler_text(*found) ==
        "rank 6 (node 0, h0) is slow, and the other ranks wait for it: 95th percentile of its time "
        "in data over 30 s: 0.9 s, of the others: 0.01 s");
}

TEST_CASE("a straggler is believed after 20 s, and forgotten when it is none any more") {
  StragglerWatch watch;
  Clock::time_point now{seconds(1'000)};
  const std::vector<NodePace> slow{node_of(0, 0.5, 0.2, 7)}, other{node_of(1, 0.5, 0.2, 7)};
  const auto look = [&](const std::vector<NodePace>& nodes, int after) {
    watch.look(nodes, now += seconds(after));
    return watch.current() ? watch.current()->rank : -1;
  };
  CHECK(look(slow, 0) == -1);
  CHECK(look(slow, 10) == -1);
  CHECK(look(slow, 10) == 1);
  CHECK(look(other, 10) == 1);
  CHECK(look(other, 20) == 9);
  CHECK(look({}, 1) == -1);
  CHECK(look(slow, 1) == -1);
}

TEST_CASE("even ranks are never named, however their times vary from step to step") {
  std::mt19937 random(11);
  // A step's time varies by a tenth, and once in 60 steps it takes three times as long.
  const auto noisy = [&] {
    std::normal_distribution<double> jitter(0, 0.1);
    const bool hiccup = random() % 60 == 0;
    return 0.2 * std::exp(jitter(random)) * (hiccup ? 3 : 1);
  };
  for (int job = 0; job < 20; ++job) {
    StragglerWatch watch;
    PaceWindow window;
    Clock::time_point now{seconds(1'000)};
    for (int step = 0; step < 300; ++step, now += seconds(1)) {
      for (int rank = 0; rank < 4; ++rank) window.add(rank, step, {{"forward", noisy()}}, now);
      watch.look({window.pace(now)}, now);
      REQUIRE_FALSE(watch.current());
    }
  }
}

TEST_CASE("a rank that is slow in one step of ten is named") {
  StragglerWatch watch;
  PaceWindow window;
  Clock::time_point now{seconds(1'000)};
  for (int step = 0; step < 70; ++step, now += seconds(1)) {
    for (int rank = 0; rank < 4; ++rank)
      window.add(rank, step, {{"data", rank == 2 && step % 10 == 0 ? 0.8 : 0.1}}, now);
    watch.look({window.pace(now)}, now);
  }
  REQUIRE(watch.current());
  CHECK(watch.current()->rank == 2);
}

TEST_CASE("a straggler is named at once, another one after a minute, the same after ten") {
  PaceMonitor monitor;
  const Clock::time_point start{seconds(1'000)};
  const Straggler one{.rank = 1, .phase = "forward"}, two{.rank = 2, .phase = "forward"};
  CHECK(monitor.should_name(one, start));
  CHECK_FALSE(monitor.should_name(two, start + seconds(59)));
  CHECK(monitor.should_name(two, start + seconds(60)));
  CHECK_FALSE(monitor.should_name(two, start + seconds(659)));
  CHECK(monitor.should_name(two, start + seconds(660)));
}

}  // namespace
}  // namespace ddp::launch
