// Which node gets which rank: a table of nodes and orders.
#include "launcher/rendezvous/round/rank_order.h"

#include <algorithm>
#include <map>
#include <random>

#include "launcher/cluster/scheduler.h"
#include "tests/launcher/command_line.h"
#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Catch::Contains;
using Hosts = std::vector<std::string>;

constexpr int kNew = 1000;  // newcomers follow the last round's nodes

Hosts ordered(std::string_view by, const std::vector<NodePlace>& nodes) {
  Hosts hosts;
  for (const std::size_t i : rank_order(by, nodes)) hosts.push_back(nodes[i].host);
  return hosts;
}

TEST_CASE("names are compared as people count") {
  const Hosts sorted{"",
                     "1",
                     "2",
                     "10",
                     "a",
                     "a1",
                     "a01",
                     "a1.x",
                     "a1.y",
                     "a2",
                     "a2b1",
                     "a2b2",
                     "a2b10",
                     "a10",
                     "a10b1",
                     "gpu-2",
                     "gpu-10",
                     "gpu2",
                     "gpu2.cluster",
                     "gpu10.cluster",
                     "gpu99999999999999999999",
                     "gpu100000000000000000000",
                     "n\xc3\xa4he"};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      INFO(sorted[i] << " " << sorted[j]);
      const int found = natural_compare(sorted[i], sorted[j]);
      CHECK((found > 0) - (found < 0) == (i > j) - (i < j));
    }
  }
}

TEST_CASE("nodes are ranked by key, then host, then arrival, and rank 0 stays where it is") {
  struct Row {
    const char* what;
    std::string_view by;
    std::vector<NodePlace> nodes;
    Hosts expected;
  };
  const std::vector<Row> rows{
      {"no node", kOrderByHost, {}, {}},
      {"hosts in natural order",
       kOrderByHost,
       {{"", "gpu10", kNew}, {"", "gpu2", kNew + 1}, {"", "gpu1", kNew + 2}},
       {"gpu1", "gpu2", "gpu10"}},
      {"as they arrived",
       kOrderByArrival,
       {{"", "c", kNew + 2}, {"", "a", kNew + 1}, {"", "b", kNew}},
       {"b", "a", "c"}},
      {"several on one host, as they arrived",
       kOrderByHost,
       {{"", "b", kNew + 2}, {"", "a", kNew + 3}, {"", "b", kNew + 1}},
       {"a", "b", "b"}},
      {"by switch first",
       kOrderByHost,
       {{"s10.n1", "n1", kNew},
        {"s2.n2", "n2", kNew + 1},
        {"s2.n3", "n3", kNew + 2},
        {"s10.n4", "n4", kNew + 3}},
       {"n2", "n3", "n1", "n4"}},
      {"by the value of a variable",
       "RACK",
       {{"r11", "a", kNew}, {"r2", "b", kNew + 1}, {"r11", "c", kNew + 2}},
       {"b", "a", "c"}},
      {"a newcomer comes between its neighbours",
       kOrderByHost,
       {{"", "n1", 0}, {"", "n3", 1}, {"", "n2", kNew}},
       {"n1", "n2", "n3"}},
      {"but not before rank 0",
       kOrderByHost,
       {{"", "n2", 0}, {"", "n3", 1}, {"", "n1", kNew}},
       {"n2", "n1", "n3"}},
      {"rank 0 is lost",
       kOrderByHost,
       {{"", "n4", 1}, {"", "n3", 2}, {"", "n2", kNew}},
       {"n2", "n3", "n4"}},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CHECK(ordered(row.by, row.nodes) == row.expected);
  }
}

TEST_CASE("the order does not depend on the order of arrival, and the next round has the same") {
  std::mt19937 random(7);
  std::vector<NodePlace> nodes;
  for (int i = 0; i < 40; ++i)
    nodes.push_back({named("s", i % 3), named("h", i), kNew + static_cast<int>(random() % 1000)});
  const Hosts first = ordered(kOrderByHost, nodes);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(nodes.begin(), nodes.end(), random);
    for (auto& node : nodes) {
      const auto place = std::find(first.begin(), first.end(), node.host) - first.begin();
      node.before =
          round % 2 == 0 ? kNew + static_cast<int>(random() % 1000) : static_cast<int>(place);
    }
    CHECK(ordered(kOrderByHost, nodes) == first);
  }
}

// ---- in a job ---------------------------------------------------------------------------------

struct OrderedJob : Job {
  using Job::Job;
  OrderedJob& come_as(int node, const std::string& host, const std::string& key = "") {
    Hello hello = hello_of(node);
    hello.host = host;
    hello.sort_key = key;
    greet(node, hello).join(node);
    return *this;
  }
};

TEST_CASE("ranks follow the host names, whoever comes first, after restarts as well") {
  OrderedJob job(elastic(3, 3, 2));
  job.come_as(1, "gpu10").come_as(2, "gpu9").come_as(3, "gpu11");
  CHECK(job.order() == Nodes{2, 1, 3});
  CHECK(job.last<Round>(3).info.master_addr == "10.0.0.2");
  job.end(1, {exited(1, 3)}).end_stopped({2, 3}).join(3).join(1).join(2);
  CHECK(job.rounds(1) == 2);
  CHECK(job.order() == Nodes{2, 1, 3});
}

TEST_CASE("a replacement ranks among its neighbours, and rank 0 stays on its node") {
  OrderedJob job(elastic(2, 3));
  job.come_as(1, "n2").come_as(2, "n4").pass(seconds(1));
  job.come_as(3, "n3").end_stopped({1, 2}).join(1).join(2);
  CHECK(job.order() == Nodes{1, 3, 2});
  job.lose(2).end_stopped({1, 3});
  job.join(1)
      .join(3)
      .pass(std::chrono::minutes(1))
      .pass(std::chrono::minutes(10));  // far from the changes before
  job.come_as(4, "n1").end_stopped({1, 3}).join(1).join(3);
  CHECK(job.order() == Nodes{1, 4, 3});
}

TEST_CASE("a job takes the first nodes that come, not the first names") {
  OrderedJob job(elastic(2, 2));
  job.come_as(1, "n3").come_as(2, "n2").come_as(3, "n1");
  CHECK(job.order() == Nodes{2, 1});
  CHECK_THAT(job.last<Note>(3).text, Contains("waits as a spare"));
}

TEST_CASE("rank-order=arrival ranks nodes as they come, and a variable by its values") {
  MembershipRules rules = elastic(2, 2);
  rules.rank_order = "arrival";
  OrderedJob arrival(rules);
  arrival.come_as(1, "n2").come_as(2, "n1");
  CHECK(arrival.order() == Nodes{1, 2});
  rules.rank_order = "RACK";
  OrderedJob by_rack(rules);
  by_rack.come_as(1, "n1", "r10").come_as(2, "n2", "r9");
  CHECK(by_rack.order() == Nodes{2, 1});
}

TEST_CASE("nodes with another --rank-order are rejected, unless ranks are fixed") {
  OrderedJob job(elastic(1, 2));
  Hello other = job.hello_of(1);
  other.agreed["--rank-order"] = "arrival";
  job.greet(1, other);
  CHECK(job.last<Refused>(1).why ==
        "its --rank-order is arrival, this job's is host; use the same on all "
        "nodes");
  Job with_ranks(fixed(2));
  other.node_rank = 0;
  other.min_nodes = other.max_nodes = 2;
  with_ranks.greet(1, other);
  CHECK(with_ranks.all<Refused>(1).empty());
}

// ---- the option -------------------------------------------------------------------------------

LaunchConfig job_of_two(std::vector<const char*> args, const Environment& environment) {
  args.insert(args.begin(), {"--nnodes=1:2", "--rdzv-endpoint=h"});
  args.push_back("x");
  return parse(std::move(args), environment);
}

TEST_CASE("the rank order is host, arrival or a variable that must be set") {
  const char* elastic_backend = "--rdzv-backend=c10d";
  CHECK(job_of_two({elastic_backend}, {}).group->rules.rank_order == "host");
  CHECK(job_of_two({elastic_backend}, {}).group->sort_key.empty());
  const auto by_rack = job_of_two({elastic_backend, "--rank-order=RACK"}, {{"RACK", "r7"}});
  CHECK(by_rack.group->rules.rank_order == "RACK");
  CHECK(by_rack.group->sort_key == "r7");
  CHECK_THROWS_WITH(job_of_two({elastic_backend, "--rank-order=RACK"}, {}),
                    "--rank-order=RACK: the environment variable RACK is not set on this node; use "
                    "host, arrival, or a variable that is set on every node");
  CHECK_THROWS_WITH(
      job_of_two({elastic_backend, "--rank-order=RACK"}, {{"RACK", std::string(300, 'x')}}),
      Contains("300 bytes"));
  const auto fixed_job = job_of_two({"--rank-order=arrival", "--node-rank=0"}, {});
  CHECK_THAT(fixed_job.hints.back(), Contains("--rank-order has no effect"));
}

TEST_CASE("under srun nodes are sorted by Slurm's topology, or by Slurm's number") {
  Environment step{{"SLURM_JOB_ID", "1"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_NODEID", "3"},
                   {"SLURM_TOPOLOGY_ADDR", "gpu7"},
                   {"SLURM_TOPOLOGY_ADDR_PATTERN", "node"}};
  CHECK(slurm_place(step) == "3");
  step["SLURM_TOPOLOGY_ADDR"] = "s0.s4.gpu7";
  step["SLURM_TOPOLOGY_ADDR_PATTERN"] = "switch.switch.node";
  CHECK(slurm_place(step) == "s0.s4.gpu7");
  CHECK(job_of_two({"--rdzv-backend=c10d"}, step).group->sort_key == "s0.s4.gpu7");
  CHECK(job_of_two({"--rdzv-backend=c10d", "--rank-order=arrival"}, step).group->sort_key.empty());
  step.erase("SLURM_STEP_ID");
  CHECK(slurm_place(step).empty());
}

}  // namespace
}  // namespace ddp::launch::membership
