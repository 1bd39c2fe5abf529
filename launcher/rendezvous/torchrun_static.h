// What torchrun's agents (torch 2.11 to 2.15) say to each other in a static job of several nodes,
// so that nodes of ddp-run and of torchrun form one group. Knows no sockets, clock or workers.
//
// Everything goes through one TCPStore, which node 0 serves on MASTER_ADDR:MASTER_PORT; torchrun's
// node 0 does so with torch's server, ours with TcpStoreServer. Workers are clients of the same
// store (TORCHELASTIC_USE_AGENT_STORE=True). N nodes, RUN_ID is --rdzv-id ("none" by default), and
// <> stands for "/RUN_ID/torchelastic/". On the wire each agent, in order:
//
//   ADD init/ 1                           torchrun's node 0 waits until this has reached N
//   SET <>role_info/NODE                  {"role": "default", "rank": NODE, "local_world_size": 2}
//   node 0 only:
//     WAIT, MULTI_GET <>role_info/0 ... N-1
//     MULTI_SET <>assigned_ranks/0 ... N-1  [rank offset, world size, role rank offset, role world
//     size]
//   WAIT, GET <>assigned_ranks/NODE
//   its workers run; if all of them end well, and only then:
//   ADD <>agent/terminal_state/num_members 1
//   SET <>agent/terminal_state/last_member "<val_ignored>"    if the sum was N
//   WAIT <>agent/terminal_state/last_member                   at most 300 s; then it ends, well
//
// The last to enter the barrier opens it and then waits itself: node 0 should serve the store until
// the others have closed their connections, or they report an error.
//
// Offsets are sums of local_world_size in the order of the nodes; role ranks likewise among the
// nodes of the same role. A torchrun agent whose workers fail restarts them alone: it sets and gets
// the same keys again, in the same store, which must last as long as the job; without restarts left
// it exits and tells nobody. With TORCH_ELASTIC_WORKER_IDENTICAL=1, which all nodes must have
// alike, no ranks are exchanged. Learned from torch/distributed/elastic: agent/server/api.py,
// rendezvous/static_tcp_rendezvous.py, utils/store.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/store/answer_parser.h"
#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

struct TorchrunNode {
  int node_rank = 0;
  int nnodes = 1;
  int local_world_size = 1;
  std::string role = "default";
  std::string run_id = "none";
  bool identical = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1
};

struct TorchrunRanks {
  int rank_offset = 0;
  int world_size = 0;
  int role_rank_offset = 0;
  int role_world_size = 0;
  bool operator==(const TorchrunRanks&) const = default;
};

class TorchrunExchange {
 public:
  explicit TorchrunExchange(TorchrunNode node);

  /// Requests for the store that have become due; to be sent in this order.
  std::vector<Request> take_requests();
  /// The next answer of the store.
  void hear(const StoreAnswer& answer);

  /// Once all nodes have told theirs.
  const std::optional<TorchrunRanks>& ranks() const { return ranks_; }
  /// For a restart of this node alone, as torchrun does it: ranks() are asked for again.
  void ask_again();
  /// This node's workers have ended well.
  void enter_exit_barrier();
  /// All nodes have entered the barrier.
  bool all_ended() const { return all_ended_; }
  /// What another node has said that is not possible, in one line; nothing more will happen then.
  const std::string& problem() const { return problem_; }

 private:
  std::string key(const std::string& name) const;
  void tell_role();
  void hear_roles(const std::vector<std::string>& infos);
  void hear_ranks(const std::string& text);
  void hear_sum(std::int64_t sum);

  TorchrunNode node_;
  std::vector<Request> due_;
  std::optional<TorchrunRanks> ranks_;
  bool joined_ = false;  // init/ has been answered
  bool in_exit_barrier_ = false;
  bool awaits_last_member_ = false;
  bool all_ended_ = false;
  std::string problem_;
};

}  // namespace ddp::launch
