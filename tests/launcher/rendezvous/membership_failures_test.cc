// What becomes of a job of several nodes when workers fail or finish.
#include <csignal>
#include <tuple>

#include "launcher/worker_contract.h"
#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

ProcessFailure killed(int rank, int signal) {
  ProcessFailure failure = exited(rank, 0);
  failure.exit = {0, signal};
  return failure;
}

TEST_CASE("a failure stops the other nodes at once, and all get the same verdict") {
  Job job(elastic(3, 3));
  job.come({1, 2, 3}).fail(2, exited(1, 7));
  for (const int node : {1, 3}) {
    CHECK(job.last<Stop>(node).text ==
          "node 1, h2 (10.0.0.2): rank 1: exit code 7; the workers here are stopped");
    CHECK_FALSE(job.last<Stop>(node).leaving);
  }
  CHECK(job.all<Stop>(2).empty());
  job.end_stopped({1}).end(2, {exited(1, 7)});
  CHECK_FALSE(job.membership.over());
  job.end_stopped({3});
  for (const int node : {1, 2, 3}) {
    const auto verdict = job.last<Verdict>(node);
    CHECK((verdict.over && verdict.outcome == Outcome::kFailed));
    REQUIRE(verdict.failures.size() == 1);
    CHECK(verdict.failures[0].exit.code == 7);
    CHECK(verdict.failures[0].host == "h2");
  }
  CHECK(job.closed == std::set<int>{1, 2, 3});
}

TEST_CASE("an end with failures is a failure, reported before or not") {
  Job job(elastic(2, 2));
  job.come({1, 2}).end(2, {exited(1, 7)});
  CHECK(job.all<Stop>(1).size() == 1);
  CHECK(job.end_stopped({1}).last<Verdict>(1).failures[0].exit.code == 7);
}

TEST_CASE("of simultaneous failures a fatal signal is the cause, then the first report") {
  Job job(elastic(3, 3));
  job.come({1, 2, 3});
  job.fail(1, exited(0, 1))
      .pass(milliseconds(900))
      .fail(3, killed(2, SIGKILL))
      .fail(2, exited(1, 5));
  job.end(2, {exited(1, 5)}).end(1, {exited(0, 1)}).end(3, {killed(2, SIGKILL)});
  const auto failures = job.last<Verdict>(1).failures;
  REQUIRE(failures.size() == 3);
  CHECK((failures[0].rank == 2 && failures[1].rank == 0 && failures[2].rank == 1));
}

TEST_CASE(
    "of simultaneous error files the earlier in its round is the cause, whatever the clocks say") {
  Job job(elastic(2, 2));
  ProcessFailure first = exited(0, 1);
  ProcessFailure second = exited(1, 5);
  first.message = second.message = "Traceback";
  std::tie(first.lived, first.time) = std::tuple(seconds(3), 2e9);
  std::tie(second.lived, second.time) = std::tuple(seconds(4), 1e9);
  job.come({1, 2}).fail(2, second).fail(1, first);
  job.end(2, {second}).end(1, {first});
  CHECK(job.last<Verdict>(1).failures[0].rank == 0);
}

TEST_CASE("a fatal signal that comes much later is a consequence") {
  Job job(elastic(2, 2));
  job.come({1, 2}).fail(1, exited(0, 1)).pass(milliseconds(1'000));
  job.end(2, {killed(1, SIGABRT)}).end(1, {exited(0, 1)});
  CHECK(job.last<Verdict>(2).failures[0].rank == 0);
}

TEST_CASE("of thousands of failures the first and worst are kept, in their order") {
  const auto failures_of = [](int nodes, int each) {
    Nodes all;
    for (int node = 1; node <= nodes; ++node) all.push_back(node);
    Job job(elastic(nodes, nodes));
    job.come(all);
    for (const int node : all) {
      std::vector<ProcessFailure> failures;
      for (int i = 0; i < each; ++i)
        failures.push_back(node == nodes / 2 && i == 0 ? killed(node * each, SIGSEGV)
                                                       : exited(node * each + i, 1));
      job.end(node, failures);
    }
    return job.last<Verdict>(1).failures;
  };
  const auto few = failures_of(4, 8), many = failures_of(200, 8);  // 4: nothing was dropped before
  REQUIRE((few.size() == kMostFailures && many.size() == kMostFailures));
  CHECK((few[0].rank == 2 * 8 && many[0].rank == 100 * 8));
  for (std::size_t i = 1; i < many.size(); ++i)
    CHECK((few[i].rank == many[i].rank && few[i].rank == static_cast<int>(8 + i - 1)));
}

TEST_CASE("a job of which one worker among thousands did not save has failed") {
  Nodes all;
  for (int node = 1; node <= 100; ++node) all.push_back(node);
  MembershipRules rules = elastic(100, 100);
  rules.restarts.program = WorkerProgram::kTrainer;
  for (const bool one_failed : {false, true}) {
    Job job(rules);
    job.come(all);
    for (const int node : all)
      job.end(node, {exited(node, one_failed && node == 90 ? 1 : kExitPreempted)});
    CHECK(job.last<Verdict>(1).outcome == (one_failed ? Outcome::kFailed : Outcome::kPreempted));
  }
}

TEST_CASE("restarts are counted over the whole job, and the count is equal on all nodes") {
  Job job(elastic(2, 2, 2));
  job.come({1, 2});
  for (const int failing : {1, 2}) {
    job.end(failing, {exited(failing, 3)}).end_stopped({3 - failing});
    CHECK_FALSE(job.last<Verdict>(1).over);
    CHECK(job.last<Verdict>(2).verdict.restart);
    job.join(2).join(1);
    CHECK(job.last<Round>(1).info.restart_count == failing);
    CHECK(job.last<Round>(2).info.restart_count == failing);
    CHECK(job.order() == Nodes{1, 2});
  }
  CHECK_THAT(job.last<Verdict>(1).text, Contains("restart 2 of 2"));
  job.end(1, {exited(1, 3)}).end_stopped({2});
  CHECK((job.last<Verdict>(1).over && job.last<Verdict>(2).over));
}

MembershipRules of_trainer(MembershipRules rules) {
  rules.restarts.program = WorkerProgram::kTrainer;
  return rules;
}

TEST_CASE("all nodes that saved their state end the job as preempted, without a restart") {
  Job job(of_trainer(elastic(2, 2, 5)));
  job.come({1, 2}).fail(1, exited(0, kExitPreempted));
  CHECK(job.last<Stop>(2).leaving);
  job.end(1, {exited(0, kExitPreempted)}).end(2, {exited(1, kExitPreempted)});
  CHECK(job.last<Verdict>(2).over);
  CHECK(job.last<Verdict>(2).outcome == Outcome::kPreempted);
}

TEST_CASE("a failure among nodes that leave stops them, and is the cause") {
  Job job(of_trainer(elastic(2, 2)));
  job.come({1, 2}).fail(1, exited(0, kExitPreempted)).fail(2, exited(1, 4));
  REQUIRE(job.all<Stop>(1).size() == 1);
  CHECK_FALSE(job.last<Stop>(1).leaving);
  job.end(1, {exited(0, kExitPreempted)}).end(2, {exited(1, 4)});
  CHECK(job.last<Verdict>(1).outcome == Outcome::kFailed);
  CHECK(job.last<Verdict>(1).failures[0].exit.code == 4);
}

TEST_CASE("a job has succeeded when its last node has") {
  Job job(elastic(2, 2));
  job.come({1, 2}).end(1).pass(seconds(3'600));
  CHECK_FALSE(job.membership.over());
  CHECK(job.all<Stop>(2).empty());
  job.end(2);
  CHECK((job.last<Verdict>(1).over && job.last<Verdict>(1).outcome == Outcome::kSucceeded));
}

TEST_CASE("a node that has finished and gone does not stop the others") {
  Job job(elastic(2, 2));
  job.come({1, 2}).end(1).lose(1);
  CHECK(job.all<Stop>(2).empty());
  job.end(2);
  CHECK(job.last<Verdict>(2).outcome == Outcome::kSucceeded);
}

TEST_CASE("with --node-rank a job cannot start again without a node that has finished and gone") {
  Job job(fixed(2, 3));
  job.come({1, 2}).end(1).lose(1).end(2, {exited(1, 3)});
  const auto verdict = job.last<Verdict>(2);
  CHECK(verdict.over);
  REQUIRE(verdict.failures.size() == 1);
  CHECK(verdict.failures[0].exit.code == 3);
  CHECK(verdict.verdict.gave_up ==
        "node 0, h1 (10.0.0.1) has finished and gone, and each --node-rank is needed");
}

}  // namespace
}  // namespace ddp::launch::membership
