// Bytes and seconds of collectives.
#include "trainer/model/cost/communication_cost.h"

#include "tests/support/catch.h"

namespace ddp::train {

TEST_CASE("a rank sends all pieces but one to gather, twice that to all-reduce") {
  CHECK(all_gather_bytes(4, 100.0) == 75.0);
  CHECK(all_gather_bytes(2, 100.0) == 50.0);
  CHECK(all_gather_bytes(1, 100.0) == 0.0);
}

TEST_CASE("a ring on one node takes a message and a piece for each other rank") {
  const Network node{8, 1, {10e-6, 100e9}, {}};
  CHECK(all_gather_seconds(node, 0.0) == Approx(70e-6));
  CHECK(all_gather_seconds(node, 800e9) == Approx(70e-6 + 7.0));
  CHECK(all_gather_seconds({1, 1, {10e-6, 100e9}, {}}, 800e9) == 0.0);
}

TEST_CASE("of a node's ring and the ring of nodes the slower counts") {
  const Network fast{16, 2, {0, 100e9}, {0, 100e9}};
  CHECK(all_gather_seconds(fast, 800e9) == Approx(7.0));
  const Network slow{16, 2, {0, 100e9}, {0, 1e9}};
  CHECK(all_gather_seconds(slow, 800e9) == Approx(50.0));  // half of it over eight links
  const Network single{4, 4, {}, {1e-3, 1e9}};
  CHECK(all_gather_seconds(single, 4e9) == Approx(3e-3 + 3.0));
}

TEST_CASE("the link of timed all-reduces predicts them") {
  const Network node{4, 1, {20e-6, 5e9}, {}};
  std::vector<TimedAllReduce> runs;
  for (const double bytes : {16e6, 4096.0, 262144.0})
    runs.push_back({bytes, 2 * all_gather_seconds(node, bytes)});
  const Link link = fitted_link(runs, 4);
  CHECK(link.latency_s == Approx(20e-6));
  CHECK(link.bytes_per_s == Approx(5e9));
}

TEST_CASE("times that do not grow with the size give no bandwidth") {
  CHECK(fitted_link({{4096, 1e-3}, {1e6, 1e-3}}, 2).bytes_per_s == 0.0);
  CHECK(fitted_link({{4096, 2e-3}, {1e6, 1e-3}}, 2).bytes_per_s == 0.0);
}

TEST_CASE("a latency is never below zero") {
  const Link link = fitted_link({{1e6, 1e-3}, {2e6, 3e-3}}, 2);
  CHECK(link.latency_s == 0.0);
  CHECK(link.bytes_per_s == Approx(1e6 / 2e-3));
}

}  // namespace ddp::train
