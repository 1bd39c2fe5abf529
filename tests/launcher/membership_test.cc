// Who takes part in a job of several nodes, and what becomes of it: messages and times in, messages
// out, no socket and no clock.
#include "launcher/rendezvous/membership.h"

#include <csignal>
#include <map>
#include <set>

#include "launcher/worker_contract.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Nodes = std::vector<int>;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kBeat{1'000};

MembershipRules elastic(int min, int max, int max_restarts = 0) {
  MembershipRules rules{.run_id = "job", .min_nodes = min, .max_nodes = max};
  rules.restarts.max_restarts = max_restarts;
  rules.join_timeout = seconds(600);
  rules.heartbeat = kBeat;
  rules.host_id = std::string("1");
  return rules;
}

MembershipRules fixed(int nodes, int max_restarts = 0) {
  MembershipRules rules = elastic(nodes, nodes, max_restarts);
  rules.fixed_ranks = true;
  rules.master_addr = "master";
  rules.master_port = 29500;
  return rules;
}

ProcessFailure exited(int rank, int code) {
  ProcessFailure failure;
  failure.rank = failure.local_rank = rank;
  failure.pid = 1000 + rank;
  failure.exit = {code, 0};
  return failure;
}

ProcessFailure killed(int rank, int signal) {
  ProcessFailure failure = exited(rank, 0);
  failure.exit = {0, signal};
  return failure;
}

// GCC 12 warns of a bug of its own at "text" + std::to_string().
std::string named(std::string name, int number) { return name.append(std::to_string(number)); }

// The agents as the host of the rendezvous hears them. Node n is at 10.0.0.n and named h<n>.
struct Job {
  explicit Job(const MembershipRules& its_rules, JobHistory history = {})
      : rules(its_rules), membership(its_rules, std::move(history), now) {}

  Hello hello_of(int node) const {
    return {.id = std::to_string(node),
            .run_id = rules.run_id,
            .min_nodes = rules.min_nodes,
            .max_nodes = rules.max_nodes,
            .node_rank = rules.fixed_ranks ? node - 1 : -1,
            .host = named("h", node),
            .pid = 100 + node,
            .role = "trainer",
            .max_restarts = rules.restarts.max_restarts,
            .port = 5000 + node};
  }
  static std::string address_of(int node) { return named("10.0.0.", node); }

  Job& greet(int node, const Hello& hello) {
    membership.hello(node, hello, address_of(node), now);
    return deliver();
  }
  Job& greet(int node) { return greet(node, hello_of(node)); }
  Job& say(int node, const ControlMessage& message) {
    membership.receive(node, message, now);
    return deliver();
  }
  Job& join(int node) { return say(node, Join{6000 + node}); }
  Job& come(const Nodes& nodes) {
    for (const int node : nodes) greet(node).join(node);
    return *this;
  }
  Job& fail(int node, const ProcessFailure& failure) { return say(node, Failed{failure}); }
  Job& end(int node, const std::vector<ProcessFailure>& failures = {}) {
    return say(node, Ended{.failures = failures});
  }
  Job& end_stopped(const Nodes& nodes) {
    for (const int node : nodes) say(node, Ended{.stopped = true});
    return *this;
  }
  Job& lose(int node, const std::string& why = "its ddp-run is gone") {
    membership.lost(node, why, now);
    return deliver();
  }
  Job& pass(milliseconds time) {
    now += time;
    membership.tick(now);
    return deliver();
  }
  Job& deliver() {
    for (auto& out : membership.take_outgoing()) {
      heard[out.to].push_back(out.message);
      if (out.then_close) closed.insert(out.to);
    }
    return *this;
  }

  template <typename Message>
  std::vector<Message> all(int node) {
    std::vector<Message> found;
    for (const auto& message : heard[node]) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }
  template <typename Message>
  Message last(int node) {
    const auto found = all<Message>(node);
    REQUIRE_FALSE(found.empty());
    return found.back();
  }
  std::size_t rounds(int node) { return all<Round>(node).size(); }
  /// The nodes of the last round, in the order of their ranks.
  Nodes order() {
    std::map<int, int> by_rank;
    int newest = -1;
    for (auto& [node, messages] : heard) {
      for (const Round& round : all<Round>(node))
        newest = std::max(newest, round.info.restart_count);
    }
    for (auto& [node, messages] : heard) {
      for (const Round& round : all<Round>(node)) {
        if (round.info.restart_count == newest) by_rank[round.info.group_rank] = node;
      }
    }
    Nodes nodes;
    for (const auto& [rank, node] : by_rank) nodes.push_back(node);
    return nodes;
  }

  MembershipRules rules;
  Clock::time_point now = Clock::now();
  Membership membership;
  std::map<int, std::vector<ControlMessage>> heard;
  std::set<int> closed;
};

// ---- the first round --------------------------------------------------------------------------

TEST_CASE("a full group starts at once, ranked in the order in which its nodes came") {
  Job job(elastic(2, 3));
  job.come({7, 3});
  CHECK(job.rounds(7) == 0);
  job.come({5});
  CHECK(job.order() == Nodes{7, 3, 5});
  CHECK(job.last<Round>(3).info.master_addr == "10.0.0.7");
  CHECK(job.last<Round>(3).info.master_port == 6007);
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

TEST_CASE("a job that too few nodes join ends with a line that counts them") {
  Job job(elastic(3, 4));
  job.come({1, 2}).pass(seconds(600));
  for (const int node : {1, 2}) {
    const auto verdict = job.last<Verdict>(node);
    CHECK(verdict.over);
    CHECK(verdict.outcome == Outcome::Failed);
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
             Contains("--nnodes is 2:3 here and 1:3 on the host"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.max_nodes = 4; }), Contains("1:4 here"));
  CHECK_THAT(refusal(elastic(1, 3), [](Hello& h) { h.max_restarts = 5; }),
             Contains("--max-restarts is 5 here and 0"));
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
  CHECK(job.last<Verdict>(2).outcome == Outcome::Succeeded);
}

// ---- failures ---------------------------------------------------------------------------------

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
    CHECK((verdict.over && verdict.outcome == Outcome::Failed));
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

TEST_CASE("a fatal signal that comes much later is a consequence") {
  Job job(elastic(2, 2));
  job.come({1, 2}).fail(1, exited(0, 1)).pass(milliseconds(1'000));
  job.end(2, {killed(1, SIGABRT)}).end(1, {exited(0, 1)});
  CHECK(job.last<Verdict>(2).failures[0].rank == 0);
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

TEST_CASE("all nodes that saved their state end the job as preempted, without a restart") {
  Job job(elastic(2, 2, 5));
  job.come({1, 2}).fail(1, exited(0, kExitPreempted));
  CHECK(job.last<Stop>(2).leaving);
  job.end(1, {exited(0, kExitPreempted)}).end(2, {exited(1, kExitPreempted)});
  CHECK(job.last<Verdict>(2).over);
  CHECK(job.last<Verdict>(2).outcome == Outcome::Preempted);
}

TEST_CASE("a failure among nodes that leave stops them, and is the cause") {
  Job job(elastic(2, 2));
  job.come({1, 2}).fail(1, exited(0, kExitPreempted)).fail(2, exited(1, 4));
  REQUIRE(job.all<Stop>(1).size() == 1);
  CHECK_FALSE(job.last<Stop>(1).leaving);
  job.end(1, {exited(0, kExitPreempted)}).end(2, {exited(1, 4)});
  CHECK(job.last<Verdict>(1).outcome == Outcome::Failed);
  CHECK(job.last<Verdict>(1).failures[0].exit.code == 4);
}

TEST_CASE("a job has succeeded when its last node has") {
  Job job(elastic(2, 2));
  job.come({1, 2}).end(1).pass(seconds(3'600));
  CHECK_FALSE(job.membership.over());
  CHECK(job.all<Stop>(2).empty());
  job.end(2);
  CHECK((job.last<Verdict>(1).over && job.last<Verdict>(1).outcome == Outcome::Succeeded));
}

TEST_CASE("a node that has finished and gone does not stop the others") {
  Job job(elastic(2, 2));
  job.come({1, 2}).end(1).lose(1);
  CHECK(job.all<Stop>(2).empty());
  job.end(2);
  CHECK(job.last<Verdict>(2).outcome == Outcome::Succeeded);
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

// ---- departures -------------------------------------------------------------------------------

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

// ---- spares and newcomers ---------------------------------------------------------------------

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

// ---- another host -----------------------------------------------------------------------------

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
}  // namespace ddp::launch
