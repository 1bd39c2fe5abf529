// Nodes that leave, are lost, wait as spares or join a job that runs.
#include <csignal>

#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

TEST_CASE("a lost node stops the others, they start again without it, outside the budget") {
  Job job(elastic(1, 3, 0));
  job.come({1, 2, 3}).lose(2);
  CHECK_THAT(job.last<Stop>(3).text,
             Contains("node 1, h2 (10.0.0.2) was lost: its ddp-run is gone"));
  job.end_stopped({1}).end(3, {exited(2, 1)});  // its peer is gone: no failure of its own
  CHECK_FALSE(job.last<Verdict>(3).over);
  CHECK_THAT(job.last<Verdict>(3).text, Catch::StartsWith("restarting without it: node 1"));
  CHECK(job.last<Verdict>(3).failures.empty());
  job.join(3).join(1);
  CHECK(job.order() == Nodes{1, 3});
  CHECK(job.last<Round>(3).info.restart_count == 1);
}

TEST_CASE("a node that announces its departure is waited for, then left out") {
  Job job(elastic(1, 2));
  job.come({1, 2}).say(2, Leave{SIGTERM});
  CHECK_THAT(job.last<Stop>(1).text, Contains("node 1, h2 (10.0.0.2) leaves the job (SIGTERM)"));
  job.end_stopped({1});
  CHECK(job.all<Verdict>(1).empty());
  job.end_stopped({2}).lose(2).join(1).pass(seconds(1));
  CHECK(job.order() == Nodes{1});
}

TEST_CASE("without enough nodes the job waits for a replacement") {
  Job job(elastic(2, 2));
  job.come({1, 2}).lose(2).end_stopped({1}).join(1).pass(seconds(100));
  CHECK(job.rounds(1) == 1);
  CHECK_THAT(job.last<Note>(1).text, Contains("waiting for nodes: 1 of at least 2"));
  job.come({3});
  CHECK(job.order() == Nodes{1, 3});
}

TEST_CASE("with --node-rank a lost node ends the job, named first") {
  Job job(fixed(2, 5));
  job.come({1, 2}).lose(2).end(1, {exited(0, 9)});
  const auto verdict = job.last<Verdict>(1);
  CHECK((verdict.over && verdict.outcome == Outcome::Failed));
  REQUIRE(verdict.failures.size() == 2);
  CHECK(verdict.failures[0].cause == "node 1, h2 (10.0.0.2) was lost: its ddp-run is gone");
}

TEST_CASE("with --node-rank a node may come again while the first round has not begun") {
  Job job(fixed(2));
  job.come({2}).lose(2).come({1});
  CHECK(job.rounds(1) == 0);
  Hello again = job.hello_of(2);
  job.greet(22, again).join(22);
  CHECK(job.order() == Nodes{1, 22});
}

TEST_CASE("with --node-rank a node lost between two rounds ends the job") {
  Job job(fixed(2, 5));
  job.come({1, 2}).end(1, {exited(0, 3)}).end_stopped({2}).join(1).lose(2);
  CHECK(job.last<Verdict>(1).over);
  CHECK_THAT(job.last<Verdict>(1).failures[0].cause, Contains("was lost"));
}

TEST_CASE("a host that leaves begins no more rounds") {
  Job job(elastic(1, 2, 5));
  job.come({1, 2}).say(1, Leave{SIGTERM});
  job.membership.retire();
  job.end_stopped({1, 2}).join(2).pass(seconds(10));
  CHECK(job.rounds(2) == 1);
  CHECK_FALSE(job.last<Verdict>(2).over);
}

TEST_CASE("more nodes than the job takes wait as spares") {
  Job job(elastic(2, 2));
  job.greet(1).greet(2).greet(3).join(3).join(2);
  CHECK(job.rounds(3) == 0);  // 1 came first
  job.join(1);
  CHECK(job.order() == Nodes{1, 2});
  CHECK_THAT(job.last<Note>(3).text, Contains("waits as a spare"));
  job.come({4});
  CHECK(job.last<Note>(4).text == "2 nodes of at most 2 run this job; this one waits as a spare");
  job.end(1).end(2);
  for (const int spare : {3, 4}) {
    CHECK(
        (job.last<Verdict>(spare).over && job.last<Verdict>(spare).outcome == Outcome::Succeeded));
    CHECK_THAT(job.last<Verdict>(spare).text, Contains("this node was a spare"));
  }
}

TEST_CASE("a spare learns who may host next, and its message is well formed") {
  Job job(elastic(2, 2));
  job.come({1, 2, 3});
  const auto sent = job.last<Standby>(3);
  const auto parsed = parse_control_message(to_json_text(sent));
  REQUIRE(parsed);
  const Round round = std::get<Standby>(*parsed).round;
  REQUIRE(round.successors.size() == 1);
  CHECK(round.successors[0].node == 2);
  CHECK(round.info.group_world_size == 2);
}

TEST_CASE("a spare takes the place of a lost node, at the end of the ranks") {
  Job job(elastic(2, 2));
  job.come({1, 2, 3}).lose(1).end_stopped({2});
  job.join(2);
  CHECK(job.order() == Nodes{2, 3});
  CHECK(job.last<Round>(3).info.restart_count == 1);
}

TEST_CASE("a spare does not take the place of a node that only needs a moment to join again") {
  for (const bool with_room : {false, true}) {
    Job job(elastic(with_room ? 1 : 2, 2, 3));
    job.come({1, 2, 3}).end(2, {exited(1, 3)}).end_stopped({1});
    job.join(1).pass(milliseconds(100));
    CHECK(job.rounds(1) == 1);
    job.join(2);
    CHECK(job.order() == Nodes{1, 2});
  }
}

TEST_CASE("a newcomer that there is room for ends the round, all start again with it") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(1));
  job.come({3});
  CHECK_THAT(job.last<Stop>(1).text, Contains("node h3 (10.0.0.3) joins"));
  job.end_stopped({1}).end(2, {}).join(1).join(2);
  CHECK(job.order() == Nodes{1, 2, 3});
  CHECK_FALSE(job.last<Verdict>(1).over);
  CHECK(job.last<Round>(3).info.restart_count == 1);
}

TEST_CASE("newcomers that come while the round ends are taken in with the first") {
  Job job(elastic(1, 4));
  job.come({1}).pass(seconds(1)).come({2, 3});
  CHECK(job.all<Stop>(1).size() == 1);
  job.end_stopped({1}).join(1);
  CHECK(job.order() == Nodes{1, 2, 3});
}

TEST_CASE("a job of which a node has finished calls nobody in") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(1)).end(1);
  job.come({3});
  CHECK(job.all<Stop>(2).empty());
  CHECK(job.last<Note>(3).text ==
        "a node has finished its part already; this one waits as a spare");
}

TEST_CASE("a job whose workers all finish as a newcomer comes has succeeded") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(1)).come({3}).end(1).end(2);
  CHECK((job.last<Verdict>(1).over && job.last<Verdict>(1).outcome == Outcome::Succeeded));
}

TEST_CASE("a newcomer that goes again before the round has ended is not waited for") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(1)).come({3}).lose(3).end_stopped({1, 2}).join(1).join(2);
  CHECK(job.pass(milliseconds(1)).order() == Nodes{1, 2});
}

}  // namespace
}  // namespace ddp::launch::membership
