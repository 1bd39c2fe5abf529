// Another node takes over the rendezvous.
#include "tests/launcher/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

JobHistory after(int rounds, const Nodes& order, int expected, int quorum) {
  JobHistory history{.rounds = rounds, .expected = expected, .quorum = quorum};
  for (const int node : order) {
    const auto place = static_cast<int>(history.order.size());
    history.order.emplace(std::pair(Job::address_of(node), 5000 + node), place);
  }
  return history;
}

TEST_CASE("a new host waits for the nodes of the last round and keeps their order and count") {
  Job job(elastic(1, 4), after(3, {2, 3, 4}, 3, 0));
  job.come({4, 2}).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  job.come({3});
  CHECK(job.order() == Nodes{2, 3, 4});
  CHECK(job.last<Round>(2).info.restart_count == 3);
}

TEST_CASE("a new host goes on without nodes that do not come in time") {
  Job job(elastic(1, 4), after(3, {2, 3, 4}, 3, 0));
  job.come({3, 2}).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  CHECK(job.pass(milliseconds(1)).order() == Nodes{2, 3});
}

TEST_CASE("a new host waits for nodes whose workers take their time to stop") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 0));
  job.greet(2).come({3}).pass(seconds(25));
  CHECK(job.rounds(3) == 0);
  job.join(2);
  CHECK(job.order() == Nodes{2, 3});
}

TEST_CASE("a new host of a minority ends its part of the job") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 2));
  job.come({2}).pass(milliseconds(1'999));
  CHECK_FALSE(job.membership.over());
  job.pass(milliseconds(1));
  REQUIRE(job.membership.over());
  CHECK_THAT(job.last<Verdict>(2).failures[0].cause, Contains("no majority"));
}

TEST_CASE("a new host of a majority goes on") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 2));
  job.come({3, 2});
  CHECK(job.order() == Nodes{2, 3});
}

TEST_CASE("the restarts that the last host has granted count for the next one") {
  auto history = after(2, {2}, 1, 0);
  history.ends = {RoundEnd{0, {1, 0}, seconds(1)}};
  Job job(elastic(1, 2, 1), history);
  job.come({2}).pass(seconds(2));
  REQUIRE(job.rounds(2) == 1);
  CHECK(job.last<Round>(2).history.size() == 1);
  job.end(2, {exited(0, 1)});
  CHECK(job.last<Verdict>(2).over);
}

TEST_CASE("a host that most nodes have left, perhaps for another one, begins no more rounds") {
  Job job(elastic(1, 3));
  job.come({1, 2, 3});
  job.membership.lost(2, "silent", job.now, /*certain=*/false);
  CHECK_FALSE(job.membership.cut_off());
  job.membership.lost(3, "silent", job.now, /*certain=*/false);
  CHECK(job.membership.cut_off());
  job.deliver().end_stopped({1}).join(1).pass(seconds(10));
  CHECK(job.rounds(1) == 1);
}

TEST_CASE("a host goes on alone if the others are gone, or too few to go on without it") {
  for (const bool certain : {true, false}) {
    Job job(elastic(1, 3));
    const Nodes others = certain ? Nodes{2, 3} : Nodes{2};
    job.come({1}).come(others).pass(seconds(1));
    for (const int node : others) job.membership.lost(node, "why", job.now, certain);
    job.deliver().end_stopped({1}).join(1).pass(seconds(1));
    CHECK(job.rounds(1) == 2);
    CHECK(job.order() == Nodes{1});
  }
}

TEST_CASE("successors are the nodes of the round in order, without the host") {
  Job job(elastic(3, 3));
  job.come({2, 1, 3});
  const auto successors = job.last<Round>(3).successors;
  REQUIRE(successors.size() == 2);
  CHECK((successors[0].node == 2 && successors[1].node == 3));
  CHECK((successors[0].address == "10.0.0.2" && successors[0].port == 5002));
}

}  // namespace
}  // namespace ddp::launch::membership
