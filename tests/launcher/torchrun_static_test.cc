// The words of torchrun's agents in a static job, said by some TorchrunExchange to each other.
#include <string>
#include <utility>
#include <vector>
#include "tests/support/catch.h"

#include "launcher/rendezvous/torchrun_static.h"
#include "launcher/store/key_values.h"

namespace ddp::launch {
namespace {

// Nodes that share the contents of a store; requests are carried out one after another.
struct StaticJob {
  explicit StaticJob(std::vector<TorchrunNode> nodes) {
    for (auto& node : nodes) {
      node.nnodes = static_cast<int>(nodes.size());
      node.node_rank = static_cast<int>(agents.size());
      agents.push_back({TorchrunExchange(node), {}, AnswerParser()});
    }
  }

  struct Agent {
    TorchrunExchange exchange;
    std::vector<Request> due;
    AnswerParser parser;
  };

  // Until nobody has anything to say; false: nobody had.
  bool step() {
    bool any = false;
    for (std::size_t i = 0; i < agents.size(); ++i) {
      auto& agent = agents[i];
      for (auto& request : agent.exchange.take_requests()) agent.due.push_back(std::move(request));
      while (!agent.due.empty() && !agent.parser.expects()) {
        Request request = agent.due.front();
        agent.due.erase(agent.due.begin());
        if (has_answer(request.type)) agent.parser.expect(request.type, request.keys.size());
        std::vector<KeyValues::Answer> answers;
        REQUIRE(store.apply(i, request, answers));
        for (const auto& answer : answers) agents[answer.to].parser.feed(answer.bytes);
        any = true;
        hear();
      }
    }
    return any;
  }
  void hear() {
    for (auto& agent : agents) {
      StoreAnswer answer;
      while (agent.parser.next(answer) == AnswerParser::Next::Complete) agent.exchange.hear(answer);
    }
  }
  void run() {
    while (step()) {
    }
  }
  std::string value(const std::string& key) {
    std::vector<KeyValues::Answer> answers;
    store.apply(99, {QueryType::Get, {key}, {}, 0}, answers);
    return answers.at(0).bytes.substr(8);
  }

  KeyValues store;
  std::vector<Agent> agents;
};

TorchrunNode node_of(int local_world_size, const std::string& role = "default") {
  TorchrunNode node;
  node.local_world_size = local_world_size;
  node.role = role;
  node.run_id = "job7";
  return node;
}

TEST_CASE("torchrun's ranks: offsets are sums over the nodes, role ranks over those of the role") {
  StaticJob job({node_of(2, "trainer"), node_of(1, "reader"), node_of(3, "trainer")});
  job.run();
  CHECK(job.agents[0].exchange.ranks() == TorchrunRanks{0, 6, 0, 5});
  CHECK(job.agents[1].exchange.ranks() == TorchrunRanks{2, 6, 0, 1});
  CHECK(job.agents[2].exchange.ranks() == TorchrunRanks{3, 6, 2, 5});
  CHECK(job.value("init/") == "3");
  CHECK(job.value("/job7/torchelastic/role_info/1") ==
        R"({"local_world_size":1,"rank":1,"role":"reader"})");
  CHECK(job.value("/job7/torchelastic/assigned_ranks/2") == "[3, 6, 2, 5]");
}

TEST_CASE("torchrun's exit barrier opens when the last node enters it") {
  StaticJob job({node_of(1), node_of(1)});
  job.run();
  job.agents[1].exchange.enter_exit_barrier();
  job.agents[1].exchange.enter_exit_barrier();
  job.run();
  CHECK_FALSE(job.agents[1].exchange.all_ended());
  job.agents[0].exchange.enter_exit_barrier();
  job.run();
  CHECK(job.agents[0].exchange.all_ended());
  CHECK(job.agents[1].exchange.all_ended());
  CHECK(job.value("/job7/torchelastic/agent/terminal_state/num_members") == "2");
  CHECK(job.value("/job7/torchelastic/agent/terminal_state/last_member") == "<val_ignored>");
}

TEST_CASE("a node that restarts alone gets its ranks again") {
  StaticJob job({node_of(1), node_of(2)});
  job.run();
  job.agents[1].exchange.ask_again();
  CHECK_FALSE(job.agents[1].exchange.ranks());
  job.run();
  CHECK(job.agents[1].exchange.ranks() == TorchrunRanks{1, 3, 1, 3});
}

TEST_CASE("identical workers need no exchange of ranks, and the barrier works as ever") {
  auto node = node_of(4);
  node.identical = true;
  StaticJob job({node, node});
  CHECK(job.agents[1].exchange.ranks() == TorchrunRanks{4, 8, 4, 8});
  for (auto& agent : job.agents) agent.exchange.enter_exit_barrier();
  job.run();
  CHECK(job.agents[0].exchange.all_ended());
  CHECK(job.value("/job7/torchelastic/role_info/0").empty());
}

std::string problem_with(const std::string& role_info) {
  auto node = node_of(1);
  node.nnodes = 2;
  TorchrunExchange exchange(node);
  const std::string own = R"({"role": "default", "rank": 0, "local_world_size": 1})";
  exchange.hear({QueryType::MultiGet, 0, {own, role_info}});
  return exchange.problem();
}

TEST_CASE("what another node says of its workers is read with care") {
  CHECK(problem_with(R"({"role": "default", "rank": 1, "local_world_size": 2})").empty());
  const std::string problem =
      "what node 1 says of its workers (torchelastic/role_info/1) cannot be read";
  for (const char* info :
       {"", "[]", "{}", "nonsense", R"({"role": "a", "rank": 0, "local_world_size": 2})",
        R"({"role": "a", "rank": 1, "local_world_size": 0})",
        R"({"role": "a", "rank": 1, "local_world_size": 99999999999})",
        R"({"role": 3, "rank": 1, "local_world_size": 2})",
        R"({"role": "a", "rank": 1, "local_world_size": 1.5})"}) {
    CHECK(problem_with(info) == problem);
  }
  CHECK(problem_with(std::string(100'000, '[')) == problem);
}

TEST_CASE("ranks that node 0 assigns must hold this node's workers") {
  for (const char* text : {"", "[]", "[0, 1, 0]", "[0, 1, 0, 1]", "[-1, 4, 0, 4]", "[0, 4, 3, 4]",
                           "[0, 2, 0, 3]", "[0, 99999999999, 0, 2]", "{}"}) {
    auto node = node_of(2);
    node.node_rank = 1;
    node.nnodes = 2;
    TorchrunExchange exchange(node);
    exchange.hear({QueryType::Get, 0, {text}});
    CHECK(exchange.problem() ==
          "node 0 assigned ranks (torchelastic/assigned_ranks/1) that 2 workers cannot have");
    CHECK_FALSE(exchange.ranks());
  }
}

}  // namespace
}  // namespace ddp::launch
