// Another node takes over the rendezvous.
#include <climits>

#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

// The last round had the old host and these, of which so many are known to be dead.
JobHistory after(int rounds, const Nodes& order, int expected, int dead) {
  JobHistory history{.rounds = rounds, .expected = expected, .epoch = 7, .dead = dead};
  history.nodes = static_cast<int>(order.size()) + 1;
  for (const int node : order) {
    const auto place = static_cast<int>(history.order.size());
    history.order.emplace(named("m", node), place);
  }
  return history;
}

TEST_CASE("a new host waits for the nodes of the last round and keeps their order and count") {
  Job job(elastic(1, 4), after(3, {2, 3, 4}, 3, 1));
  job.come({4, 2}).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  job.come({3});
  CHECK(job.order() == Nodes{2, 3, 4});
  CHECK(job.last<Round>(2).info.restart_count == 3);
}

TEST_CASE("a new host of half of the last round waits, whoever else comes") {
  Job job(elastic(1, 4), after(3, {2, 3, 4}, 3, 1));
  job.come({3, 2}).pass(seconds(10));
  CHECK(job.rounds(2) == 0);  // half of the last round
  job.come({5}).pass(milliseconds(0));
  CHECK(job.rounds(2) == 0);
  job.come({4});
  CHECK(job.order() == Nodes{2, 3, 4, 5});
}

TEST_CASE("a host whose epochs are granted begins no round without one, and needs no mandate") {
  MembershipRules rules = elastic(1, 3);
  rules.epochs_are_granted = true;
  Job job(rules, {.rounds = 2, .expected = 2, .epoch = 7});
  job.come({2}).pass(milliseconds(1'999));
  CHECK_FALSE(job.membership.awaits_epoch());
  job.pass(milliseconds(1));
  const auto waiting = job.membership.awaits_epoch();
  REQUIRE(waiting);
  CHECK(waiting->size() == 1);
  CHECK(waiting->front().address == "10.0.0.2");
  CHECK(job.pass(seconds(30)).rounds(2) == 0);
  CHECK_FALSE(job.membership.has_lost_mandate(job.now));
  job.come({3});
  job.membership.grant_epoch(12, job.now);
  CHECK(job.deliver().order() == Nodes{2, 3});
  CHECK(job.last<Round>(2).info.epoch == 12);
  CHECK_FALSE(job.membership.awaits_epoch());

  SECTION("each round needs its own") {
    job.lose(3).end_stopped({2}).join(2).pass(seconds(5));
    CHECK(job.rounds(2) == 1);
    REQUIRE(job.membership.awaits_epoch());
    job.membership.grant_epoch(13, job.now);
    CHECK(job.deliver().last<Round>(2).info.epoch == 13);
  }
  SECTION("one that comes too late is of no use") {
    job.membership.grant_epoch(13, job.now);
    CHECK(job.deliver().rounds(2) == 1);
  }
  SECTION("the wait ends with the job") {
    job.lose(3).end_stopped({2}).join(2).pass(seconds(600));
    CHECK_THAT(job.last<Verdict>(2).failures.front().cause,
               Contains("could not be entered in etcd"));
  }
}

TEST_CASE("a new host waits for all nodes of a round that may never have begun") {
  JobHistory history = after(1, {2, 3, 4}, 3, 1);
  history.begun = false;
  Job job(elastic(1, 4), history);
  job.come({2, 3}).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  SECTION("it has no mandate without them") {
    job.pass(milliseconds(1));
    CHECK(job.membership.has_lost_mandate(job.now));
  }
  SECTION("with them it begins a round, after which most of them will do") {
    job.come({4});
    CHECK(job.order() == Nodes{2, 3, 4});
    job.membership.lost(4, "silent", job.now, /*certain=*/false);
    job.deliver().end_stopped({2, 3}).join(2).join(3).pass(seconds(1));
    CHECK(job.order() == Nodes{2, 3});
  }
}

TEST_CASE(
    "an agent at the address of one of the last round is not that one, unless it remembers it") {
  for (const bool remembers : {false, true}) {
    Job job(elastic(1, 4), after(1, {2, 3}, 2, 0));  // three nodes, none of them dead
    Hello hello = job.hello_of(3);
    hello.id = "another";
    if (!remembers) hello.member = "another";
    job.come({2}).greet(3, hello).join(3).pass(seconds(2));
    CHECK(job.rounds(2) == (remembers ? 1 : 0));
    CHECK(job.membership.has_lost_mandate(job.now) == !remembers);
  }
}

TEST_CASE(
    "a new host of a round that may never have begun goes on with the nodes that have returned") {
  JobHistory history = after(1, {2, 3}, 3, 1);
  history.begun = false;
  Job job(elastic(1, 4), history);
  const auto returned = [&](int node, long long epoch) {
    Hello hello = job.hello_of(node);
    hello.id = named("new", node);
    hello.epoch = epoch;
    hello.returned = true;
    return hello;
  };
  job.come({2}).greet(3, returned(3, 5)).join(3).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  job.greet(1, returned(1, 7)).join(1).pass(milliseconds(0));  // it had accepted the round
  CHECK(job.rounds(2) == 1);
}

TEST_CASE("newcomers take no place in a round that a node of the last one needs") {
  Job job(elastic(1, 3), after(1, {2, 3}, 2, 0));
  Hello returned = job.hello_of(3);
  returned.port = 9000;
  returned.epoch = 7;
  returned.returned = true;
  job.come({4, 5}).greet(3, returned).join(3).come({2}).pass(seconds(2));
  CHECK(job.order() == Nodes{2, 3, 4});
}

TEST_CASE("a host that is there takes part in its round, whoever came first") {
  Job job(elastic(1, 2));
  job.greet(2).greet(3).greet(1).join(2).join(3).join(1);
  CHECK(job.order() == Nodes{1, 2});
  CHECK(job.last<Round>(1).successors.size() == 1);
}

TEST_CASE(
    "a host that had no part in the last round leaves the places to the nodes of that round") {
  Job job(elastic(1, 1), {.rounds = 1, .epoch = 7, .nodes = 1});
  Hello only = job.hello_of(2);
  only.epoch = 7;
  only.returned = true;
  job.greet(1).greet(2, only).join(1).join(2).pass(seconds(2));
  CHECK(job.order() == Nodes{2});
}

TEST_CASE("a node that comes while the others accept a round does not end it") {
  MembershipRules rules = elastic(1, 2);
  rules.epochs_are_granted = true;
  Job job(rules, {.rounds = 2, .expected = 2, .epoch = 7});
  job.deaf = {2};
  job.come({2, 3});
  job.membership.grant_epoch(12, job.now);
  Hello later = job.hello_of(4);
  later.epoch = 20;
  job.deliver().greet(4, later).say(2, Accepted{12});
  CHECK(job.all<Go>(2).size() == 1);
}

TEST_CASE("a new host waits for nodes whose workers take their time to stop") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 1));
  job.greet(2).come({3}).pass(seconds(25));
  CHECK(job.rounds(3) == 0);
  job.join(2);
  CHECK(job.order() == Nodes{2, 3});
}

TEST_CASE("a new host that most nodes do not come to has no mandate after their patience") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 0));
  job.come({2}).pass(milliseconds(1'999));
  CHECK_FALSE(job.membership.has_lost_mandate(job.now));
  job.pass(milliseconds(1));
  CHECK(job.membership.has_lost_mandate(job.now));
  CHECK(job.rounds(2) == 0);
}

TEST_CASE("a new host of a majority goes on without the others after their patience") {
  Job job(elastic(1, 4), after(1, {2, 3}, 3, 0));
  job.come({3, 2}).pass(milliseconds(1'999));
  CHECK(job.rounds(2) == 0);
  CHECK(job.pass(milliseconds(1)).order() == Nodes{2, 3});
  CHECK_FALSE(job.membership.has_lost_mandate(job.now));
}

TEST_CASE("a host must not go on once a node knows a later round than it does") {
  Job job(elastic(1, 4), after(1, {2, 3}, 2, 1));
  Hello later = job.hello_of(3);
  later.epoch = 8;
  job.come({2}).greet(3, later).join(3).pass(seconds(10));
  CHECK(job.membership.has_lost_mandate(job.now));
  CHECK(job.rounds(2) == 0);
}

TEST_CASE(
    "a later round that no member of the last one knows has never run, and epochs go on from it") {
  const long long later = 5LL << 36;
  JobHistory history = after(3, {1, 2, 3}, 3, 1);
  SECTION("a host hears of it, and makes way for it") {
    Job job(elastic(1, 4), history);
    job.come({1, 2, 3});
    Hello hello = job.hello_of(4);
    hello.epoch = later;
    job.greet(4, hello);
    CHECK(job.membership.has_lost_mandate(job.now));
    CHECK(job.membership.later_epoch() == later);
  }
  history.unused = later;
  SECTION("the last round's members have made it the host again") {
    Job job(elastic(1, 4), history);
    job.come({1, 2, 3});
    Hello hello = job.hello_of(4);
    hello.epoch = later;
    job.greet(4, hello).join(4);
    CHECK_FALSE(job.membership.has_lost_mandate(job.now));
    CHECK(job.end_stopped({1, 2, 3}).join(1).join(2).join(3).pass(seconds(5)).order().size() == 4);
    CHECK(job.last<Round>(1).info.epoch > later);
  }
  SECTION("one of them knows it after all") {
    Job job(elastic(1, 4), history);
    Hello hello = job.hello_of(2);
    hello.epoch = later;
    job.come({1}).greet(2, hello);
    CHECK(job.membership.has_lost_mandate(job.now));
  }
}

TEST_CASE("a node's epoch that no host can have reached changes nothing") {
  const long long last = LLONG_MAX / 2;
  SECTION("of a stranger to the last round") {
    Job job(elastic(1, 4), after(1, {2, 3}, 2, 1));
    Hello hello = job.hello_of(4);
    hello.epoch = last;
    job.greet(4, hello).come({2, 3});
    CHECK_FALSE(job.membership.has_lost_mandate(job.now));
    CHECK(job.membership.later_epoch() < last);
  }
  SECTION("of a node that has returned to a new job") {
    Job job(elastic(1, 2));
    Hello hello = job.hello_of(1);
    hello.epoch = last;
    hello.returned = true;
    job.greet(1, hello).join(1).pass(seconds(1));
    CHECK(job.last<Round>(1).info.epoch == 0);
  }
}

TEST_CASE("epochs grow with each round, and beyond all of the last host's") {
  Job first(elastic(1, 2));
  first.come({1}).pass(seconds(1));
  CHECK(first.last<Round>(1).info.epoch == 0);
  first.come({2}).end_stopped({1}).join(1);
  CHECK(first.last<Round>(1).info.epoch == 1);
  Job next(elastic(1, 2), after(1, {2}, 1, 1));
  next.come({2}).pass(seconds(2));
  CHECK(next.last<Round>(2).info.epoch > 1'000'000);
}

TEST_CASE("rounds have one random id in common, under each host, and a new job has another") {
  Job first(elastic(1, 2));
  first.come({1}).pass(seconds(1)).come({2}).end_stopped({1}).join(1);
  CHECK(first.last<Round>(1).info.job == "1");  // the first host's
  auto history = after(1, {2}, 1, 1);
  history.job = "one of old";
  Job next(elastic(1, 2), history);
  next.come({2}).pass(seconds(2));
  CHECK(next.last<Round>(2).info.job == "one of old");
}

TEST_CASE("a round that a node does not accept is withdrawn when that node is lost") {
  Job job(elastic(1, 3));
  job.deaf = {2};
  job.come({1, 2, 3});
  CHECK(job.all<Go>(1).empty());
  job.lose(2).pass(seconds(1));
  CHECK(job.all<Go>(1).size() == 1);
  CHECK(job.order() == Nodes{1, 3});
  CHECK(job.last<Go>(1).epoch == job.last<Round>(1).info.epoch);
}

TEST_CASE("the restarts that the last host has granted count for the next one") {
  auto history = after(2, {2}, 1, 1);
  const MembershipRules rules = elastic(1, 2, 1);
  history.tally.add(rules.restarts, RoundEnd{0, {1, 0}, seconds(1)});
  Job job(rules, history);
  job.come({2}).pass(seconds(2));
  REQUIRE(job.rounds(2) == 1);
  CHECK(job.last<Round>(2).tally.unhealthy == 1);
  job.end(2, {exited(0, 1)});
  CHECK(job.last<Verdict>(2).over);
}

TEST_CASE("a host that most nodes have left, perhaps for another one, begins no more rounds") {
  Job job(elastic(1, 3));
  job.come({1, 2, 3});
  job.membership.lost(2, "silent", job.now, /*certain=*/false);
  job.membership.lost(3, "silent", job.now, /*certain=*/false);
  job.deliver().end_stopped({1}).join(1).pass(seconds(2));
  CHECK(job.rounds(1) == 1);
  CHECK(job.membership.has_lost_mandate(job.now));
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

TEST_CASE("a job that needs all nodes ends under the next host, but for a spare that comes") {
  for (const bool spare : {false, true}) {
    Job job(elastic(3, 3), after(1, {2, 3}, 2, 1));
    job.come({2, 3});
    if (spare) job.come({4});
    job.pass(seconds(1));
    CHECK(job.membership.over() == !spare);
    if (spare) continue;
    CHECK_THAT(job.last<Verdict>(3).failures[0].cause,
               Catch::StartsWith("the host of the rendezvous was lost; --nnodes=3 needs every"));
  }
}

TEST_CASE("successors of a large round come from all of its parts, and its message stays small") {
  Nodes nodes;
  for (int node = 1; node <= 1'000; ++node) nodes.push_back(node);
  auto rules = elastic(1, 1'000, 100'000);
  Job job(rules);
  job.come(nodes);
  for (int i = 0; i < 3; ++i) {
    ProcessFailure failure = exited(i, 1);
    failure.heartbeat = std::string(5'000, 'x');
    job.end(1, {failure});
    for (int node = 2; node <= 1'000; ++node) job.end_stopped({node});
    for (const int node : nodes) job.join(node);
  }
  const Round round = job.last<Round>(1'000);
  REQUIRE(round.successors.size() == kMaxSuccessors);
  int in_one_rack = 0;
  for (const auto& one : round.successors) in_one_rack += one.node <= 64 ? 1 : 0;
  CHECK(in_one_rack < 6);
  CHECK(round.tally.unhealthy == 3);
  CHECK(to_json_text(round).size() < 8'192);
}

TEST_CASE("successors are the nodes of the round in order, without the host") {
  Job job(elastic(3, 3));
  job.come({2, 1, 3});
  const auto successors = job.last<Round>(3).successors;
  REQUIRE(successors.size() == 2);
  CHECK((successors[0].node == 2 && successors[1].node == 3));
  CHECK((successors[0].address == "10.0.0.2" && successors[0].port == 5002));
  CHECK(successors[0].member == "m2");
}

}  // namespace
}  // namespace ddp::launch::membership
