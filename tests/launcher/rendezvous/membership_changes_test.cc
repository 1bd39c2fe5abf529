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
  job.end_stopped({1}).end(3, {exited(2, 1)});  // its peer has failed: no failure of its own
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

TEST_CASE("without enough nodes the job waits for a replacement, and says for how long and why") {
  Job job(elastic(2, 2, 1));
  job.come({1, 2}).lose(2).end_stopped({1}).join(1).pass(seconds(100));
  CHECK(job.rounds(1) == 1);
  CHECK(job.last<Verdict>(1).text ==
        "waiting 600 s at most (--rdzv-conf=join_timeout) for another in its place, as --nnodes "
        "needs 2: node 1, h2 (10.0.0.2) was lost: its ddp-run is gone");
  CHECK(job.all<Note>(1).empty());  // the line is there already
  job.come({3});
  CHECK(job.order() == Nodes{1, 3});
}

TEST_CASE("of a fixed number of nodes without restarts a lost one ends the job on all") {
  Job job(elastic(3, 3));
  job.come({1, 2, 3}).lose(2).end_stopped({1, 3});
  for (const int node : {1, 3}) {
    const auto verdict = job.last<Verdict>(node);
    CHECK((verdict.over && verdict.outcome == Outcome::kFailed));
    CHECK(verdict.failures[0].cause ==
          "node 1, h2 (10.0.0.2) was lost: its ddp-run is gone; --nnodes=3 needs every node, and "
          "--max-restarts=0 allows no restart");
  }
}

TEST_CASE("of a fixed number of nodes without restarts a spare takes the place of a lost one") {
  Job job(elastic(2, 2));
  job.come({1, 2, 3}).lose(2).end_stopped({1}).join(1);
  CHECK(job.order() == Nodes{1, 3});
  job.lose(3).end_stopped({1});
  CHECK(job.last<Verdict>(1).over);
}

TEST_CASE("21 nodes that are lost within 7 s end three rounds at most") {
  Nodes nodes;
  for (int node = 1; node <= 40; ++node) nodes.push_back(node);
  Job job(elastic(1, 40));
  job.come(nodes).pass(seconds(3'600));
  const auto go_on = [&](int from) {
    for (int node = 1; node < from; ++node) {
      if (job.all<Verdict>(node).size() == job.all<Stop>(node).size()) continue;
      job.end_stopped({node});
    }
    for (int node = 1; node < from; ++node) job.join(node);
  };
  for (int lost = 0; lost < 21; ++lost) {
    job.lose(40 - lost);
    go_on(40 - lost);
    job.pass(milliseconds(333));
    go_on(40 - lost);
  }
  job.pass(seconds(5));
  CHECK(job.rounds(1) <= 1 + 3);
  CHECK(job.order().size() == 19);
}

TEST_CASE("a node that comes and goes all the time ends few rounds, and is told why it waits") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(3'600));
  std::size_t verdicts = 0;
  auto due = job.now;
  const auto go_on = [&] {
    for (const int node : {1, 2}) {
      if (job.all<Stop>(node).size() > job.all<Verdict>(node).size()) job.end_stopped({node});
    }
    const auto all = job.all<Verdict>(1);
    if (all.size() > verdicts) due = job.now + all.back().verdict.delay;
    verdicts = all.size();
    if (job.now >= due) job.join(1).join(2);
  };
  int flapping = 10;
  for (int i = 0; i < 500; ++i, ++flapping) {  // 25 s
    job.come({flapping});
    go_on();
    job.pass(milliseconds(25)).lose(flapping);
    go_on();
    job.pass(milliseconds(25));
  }
  CHECK(job.rounds(1) < 10);
  job.pass(seconds(60));
  go_on();
  CHECK(job.order() == Nodes{1, 2});
  job.come({9});
  CHECK(job.last<Note>(9).text ==
        "this node joins in 32 s: nodes have come and gone in quick succession");
  CHECK(job.pass(seconds(31)).all<Stop>(1).size() == verdicts);
  job.pass(seconds(1));
  go_on();
  CHECK(job.pass(seconds(60)).join(1).join(2).order() == Nodes{1, 2, 9});
}

TEST_CASE("with --node-rank a lost node ends the job, named first") {
  Job job(fixed(2, 5));
  job.come({1, 2}).lose(2).end(1, {exited(0, 9)});
  const auto verdict = job.last<Verdict>(1);
  CHECK((verdict.over && verdict.outcome == Outcome::kFailed));
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
        (job.last<Verdict>(spare).over && job.last<Verdict>(spare).outcome == Outcome::kSucceeded));
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
  CHECK((job.last<Verdict>(1).over && job.last<Verdict>(1).outcome == Outcome::kSucceeded));
}

TEST_CASE("a newcomer that goes again before the round has ended is not waited for") {
  Job job(elastic(1, 3));
  job.come({1, 2}).pass(seconds(1)).come({3}).lose(3).end_stopped({1, 2}).join(1).join(2);
  CHECK(job.pass(milliseconds(1)).order() == Nodes{1, 2});
}

}  // namespace
}  // namespace ddp::launch::membership
