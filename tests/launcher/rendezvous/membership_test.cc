// Who takes part in a job of several nodes: how its first round begins.
#include <csignal>

#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;

TEST_CASE("a full group starts at once, ranked by the names of its nodes") {
  Job job(elastic(2, 3));
  job.come({7, 3});
  CHECK(job.rounds(7) == 0);
  job.come({5});
  CHECK(job.order() == Nodes{3, 5, 7});
  CHECK(job.last<Round>(7).info.master_addr == "10.0.0.3");
  CHECK(job.last<Round>(7).info.master_port == 6003);
  CHECK(job.last<Round>(5).info.restart_count == 0);
  CHECK(job.last<Round>(5).info.group_world_size == 3);
}

TEST_CASE("a node that names its address is reached there") {
  Job job(elastic(1, 1));
  Hello hello = job.hello_of(1);
  hello.address = "192.168.7.7";
  job.greet(1, hello).join(1);
  CHECK(job.last<Round>(1).info.master_addr == "192.168.7.7");
}

TEST_CASE("nodes of different sizes have consecutive ranks, and roles are counted on their own") {
  Job job(elastic(3, 3));
  const std::vector<std::pair<int, const char*>> sizes{
      {2, "trainer"}, {1, "reader"}, {3, "trainer"}};
  for (int node = 1; node <= 3; ++node) {
    Hello hello = job.hello_of(node);
    hello.local_world_size = sizes[static_cast<std::size_t>(node - 1)].first;
    hello.role = sizes[static_cast<std::size_t>(node - 1)].second;
    job.greet(node, hello).join(node);
  }
  const auto first = job.last<Round>(1).info;
  const auto second = job.last<Round>(2).info;
  const auto third = job.last<Round>(3).info;
  CHECK((first.first_rank == 0 && second.first_rank == 2 && third.first_rank == 3));
  CHECK((first.world_size == 6 && second.world_size == 6 && third.world_size == 6));
  CHECK((first.first_role_rank == 0 && first.role_world_size == 5));
  CHECK((second.first_role_rank == 0 && second.role_world_size == 1));
  CHECK((third.first_role_rank == 2 && third.role_world_size == 5));
}

TEST_CASE("fewer than all nodes start when no other one has come for a while") {
  Job job(elastic(1, 4));
  job.come({1}).pass(milliseconds(900)).come({2}).pass(milliseconds(999));
  CHECK(job.rounds(1) == 0);
  CHECK(job.membership.deadline() == job.now + milliseconds(1));
  job.pass(milliseconds(1));
  CHECK(job.order() == Nodes{1, 2});
}

TEST_CASE("the last call ends even if nodes keep coming") {
  auto rules = elastic(1, 100);
  rules.last_call = seconds(2);
  Job job(rules);
  for (int node = 1; job.rounds(1) == 0 && node < 50; ++node)
    job.come({node}).pass(milliseconds(500));
  CHECK(job.order().size() == 4);
}

TEST_CASE("a last call that the user has set is kept in full") {
  auto rules = elastic(1, 2);
  rules.last_call = rules.quiet = seconds(5);
  Job job(rules);
  job.come({1}).pass(milliseconds(4'999));
  CHECK(job.rounds(1) == 0);
  CHECK(job.pass(milliseconds(1)).rounds(1) == 1);
}

TEST_CASE("the last call begins anew when a node leaves that was needed") {
  Job job(elastic(2, 3));
  job.come({1, 2}).pass(milliseconds(900)).lose(2).pass(seconds(60));
  CHECK(job.rounds(1) == 0);
  job.come({3}).pass(milliseconds(999));
  CHECK(job.rounds(1) == 0);
  CHECK(job.pass(milliseconds(1)).order() == Nodes{1, 3});
}

TEST_CASE("with --node-rank the ranks are those, whatever the order of arrival") {
  Job job(fixed(3));
  job.come({3, 1}).pass(seconds(30));
  CHECK(job.rounds(1) == 0);
  job.come({2});
  CHECK(job.order() == Nodes{1, 2, 3});
  CHECK(job.last<Round>(3).info.master_addr == "master");
  CHECK(job.last<Round>(3).info.master_port == 29500);
}

TEST_CASE("nodes that wait are told for how many, once, and which ranks are missing") {
  Job job(fixed(3));
  job.come({1}).pass(milliseconds(2'999));
  CHECK(job.all<Note>(1).empty());
  job.pass(milliseconds(1)).pass(seconds(100));
  REQUIRE(job.all<Note>(1).size() == 1);
  CHECK_THAT(job.last<Note>(1).text, Contains("1 of at least 3 here, for 600 s at most") &&
                                         Contains("missing: --node-rank=1, 2"));
}

TEST_CASE("why no other machine can come is said in the line about waiting") {
  MembershipRules rules = elastic(2, 2);
  rules.reach_note = "; alone";
  Job job(rules);
  job.come({1}).pass(seconds(3));
  CHECK(job.last<Note>(1).text ==
        "waiting for nodes: 1 of at least 2 here, for 600 s at most; alone");
}

TEST_CASE("a job that too few nodes join ends with a line that counts them") {
  Job job(elastic(3, 4));
  job.come({1, 2}).pass(seconds(600));
  for (const int node : {1, 2}) {
    const auto verdict = job.last<Verdict>(node);
    CHECK(verdict.over);
    CHECK(verdict.outcome == Outcome::kFailed);
    REQUIRE(verdict.failures.size() == 1);
    CHECK(verdict.failures[0].cause ==
          "2 nodes of at least 3 joined within 600 s (--rdzv-conf=join_timeout)");
    CHECK_FALSE(verdict.failures[0].is_worker());
  }
  CHECK(job.membership.over());
}

TEST_CASE("a node whose options differ is refused, and told how") {
  const auto refusal = [](const MembershipRules& rules, auto change) {
    Job job(rules);
    job.greet(1);
    Hello hello = job.hello_of(2);
    change(hello);
    job.greet(2, hello);
    CHECK(job.closed == std::set<int>{2});
    CHECK(job.all<Welcome>(2).empty());
    return job.last<Refused>(2).why;
  };
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.run_id = "other"; }),
             Contains("--rdzv-id=job, not other"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.min_nodes = 2; }),
             Contains("its --nnodes is 2:3, this job's is 1:3"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.max_nodes = 4; }), Contains("is 1:4,"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.max_restarts = 5; }),
             Contains("--max-restarts is 5, this job's is 0"));
  CHECK(
      refusal(elastic(1, 3), [](Hello& h) { h.agreed["--restart-policy"] = "never,final=7"; }) ==
      "its --restart-policy is never,final=7, this job's is on-failure; use the same on all nodes");
  CHECK_THAT(
      refusal(elastic(1, 3), [](Hello& h) { h.agreed["--rdzv-conf=keep_alive_interval"] = "9 s"; }),
      Contains("keep_alive_interval is 9 s, this job's is 1 s"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.agreed.clear(); }), Contains("is unknown"));
  CHECK_THAT(refusal(fixed(3), [](Hello& h) { h.node_rank = 3; }), Contains("must be from 0 to 2"));
  CHECK_THAT(refusal(fixed(3), [](Hello& h) { h.node_rank = -1; }),
             Contains("must be from 0 to 2"));
  CHECK_THAT(refusal(fixed(3), [](Hello& h) { h.node_rank = 0; }),
             Contains("--node-rank=0 is taken by h1, pid 101"));
}

TEST_CASE("a refused node has no part in the job, whatever it sends") {
  Job job(elastic(1, 2));
  Hello stranger = job.hello_of(9);
  stranger.run_id = "other";
  job.greet(9, stranger).join(9).end(9).say(9, Leave{SIGTERM}).lose(9);
  job.come({1, 2});
  CHECK(job.order() == Nodes{1, 2});
}

TEST_CASE("messages that make no sense in the present phase are ignored") {
  Job job(elastic(2, 2));
  job.greet(1).end(1).fail(1, exited(0, 1)).say(1, Verdict{}).say(1, Alive{}).say(1, Welcome{});
  job.join(1).join(1).come({2});
  CHECK(job.order() == Nodes{1, 2});
  job.join(1).join(2);
  CHECK(job.rounds(1) == 1);
  job.end(1).end(1, {exited(0, 3)}).fail(1, exited(0, 3)).end(2);
  CHECK(job.last<Verdict>(2).outcome == Outcome::kSucceeded);
}

}  // namespace
}  // namespace ddp::launch::membership
