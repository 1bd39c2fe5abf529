// Nodes that are left out: those that fail first too often, and those that report to be unfit.
#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

MembershipRules with_quarantine(int min, int max, int after) {
  MembershipRules rules = elastic(min, max, 10);
  rules.quarantine_after = after;
  return rules;
}

// A round that `guilty` ends; the others are stopped, and all that still may join again.
void fail_round(Job& job, int guilty, const Nodes& others) {
  job.end(guilty, {exited(guilty, 3)}).end_stopped(others).pass(seconds(1));
}

void rejoin(Job& job, const Nodes& nodes) {
  for (const int node : nodes) job.join(node);
  job.pass(seconds(60));
}

TEST_CASE("a node that fails first in N rounds is excluded, and a spare takes its place") {
  Job job(with_quarantine(2, 2, 2));
  job.come({1, 2, 3});
  fail_round(job, 2, {1});
  CHECK_THAT(job.last<Verdict>(1).text, !Contains("excluded"));
  rejoin(job, {1, 2});
  fail_round(job, 2, {1});
  CHECK_THAT(job.last<Verdict>(1).text,
             Contains("node 1, h2 (10.0.0.2) is excluded: its workers were the first to fail in 2 "
                      "rounds"));
  const auto verdict = job.last<Verdict>(2);
  CHECK((verdict.over && verdict.outcome == Outcome::kFailed));
  CHECK_THAT(verdict.failures[0].cause, Contains("this node is excluded from the job"));
  CHECK(job.closed.count(2) == 1);
  job.lose(2);
  rejoin(job, {1});
  CHECK(job.order() == Nodes{1, 3});
}

TEST_CASE("rounds that other nodes failed first in do not count") {
  Job job(with_quarantine(1, 3, 2));
  job.come({1, 2, 3});
  for (const int guilty : {1, 2, 3}) {
    Nodes others{1, 2, 3};
    std::erase(others, guilty);
    fail_round(job, guilty, others);
    CHECK_FALSE(job.last<Verdict>(guilty).over);
    rejoin(job, {1, 2, 3});
  }
  // A node that fails as a consequence is not the first.
  job.fail(1, exited(1, 3)).end(2, {exited(2, 1)}).end(1, {exited(1, 3)}).end_stopped({3});
  CHECK(job.last<Verdict>(1).over);
  CHECK_FALSE(job.last<Verdict>(2).over);
}

TEST_CASE("no node is excluded that the job cannot do without, nor one with a fixed rank") {
  Job job(with_quarantine(2, 3, 1));
  job.come({1, 2}).pass(seconds(60));
  fail_round(job, 2, {1});
  CHECK_FALSE(job.last<Verdict>(2).over);
  CHECK_THAT(job.last<Verdict>(2).text,
             Contains("stays, although its workers were the first to "
                      "fail in 1 round: the job needs all of its nodes"));
  MembershipRules rules = fixed(2, 10);
  rules.quarantine_after = 1;
  Job with_ranks(rules);
  with_ranks.come({1, 2});
  fail_round(with_ranks, 2, {1});
  CHECK_FALSE(with_ranks.last<Verdict>(2).over);
}

TEST_CASE("by default no node is ever excluded") {
  Job job(elastic(1, 2, 10));
  job.come({1, 2});
  for (int round = 0; round < 5; ++round) {
    fail_round(job, 2, {1});
    CHECK_FALSE(job.last<Verdict>(2).over);
    rejoin(job, {1, 2});
  }
}

TEST_CASE("an unfit node's reason is told to the others, which begin without it") {
  Job job(elastic(1, 2));
  job.greet(1).greet(2).join(1).say(2, Leave{.why = "preflight failed on h2: GPU 5 is lost"});
  CHECK_THAT(job.last<Note>(1).text,
             Contains("h2 (10.0.0.2) leaves the job (preflight failed on h2: GPU 5 is lost)"));
  job.pass(seconds(2));
  CHECK(job.order() == Nodes{1});
}

TEST_CASE("with fixed ranks an unfit node ends the job, before and between rounds") {
  const Leave unfit{.why = "preflight failed on h2"};
  Job before(fixed(3));
  before.greet(1).greet(2).join(1).say(2, unfit);
  CHECK(before.last<Verdict>(1).over);
  CHECK_THAT(before.last<Verdict>(1).failures[0].cause, Contains("(preflight failed on h2)"));
  Job between(fixed(2, 3));
  between.come({1, 2}).end(2, {exited(1, 3)}).end_stopped({1}).say(2, unfit);
  CHECK(between.last<Verdict>(1).over);
}

}  // namespace
}  // namespace ddp::launch::membership
