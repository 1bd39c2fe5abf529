// The options of a job of several nodes and this node's part in it: a plain struct.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/round/membership_rules.h"

namespace ddp::launch {

/// Time before the node logs what it is waiting for.
inline constexpr std::chrono::milliseconds kSilentWait{3'000};

struct GroupSettings {
  MembershipRules rules;  // the same on all nodes
  std::string host;       // endpoint: a name or a numeric address
  int port = 0;
  std::vector<Endpoint> more_endpoints{};  // dynamic: where the host may be as well
  std::optional<bool> is_host{};  // nullopt: whether the endpoint is an address of this machine
  std::chrono::milliseconds connect_timeout{60'000};
  std::string token{};
  std::string token_remedy{};  // without a token: what the user can do
  bool rank0_store = false;    // rank 0 hosts the workers' store, not the agent of its node

  // This node.
  std::string host_name;
  int local_world_size = 1;
  std::string role;
  int node_rank = -1;
  std::string sort_key{};    // NodePlace::key
  std::string local_addr{};  // empty: the address that the host sees
  std::string
      members_file{};  // where the last round's nodes are kept (MembersFile); empty: nowhere

  std::vector<Endpoint> endpoints() const {
    std::vector<Endpoint> all{{host, port}};
    all.insert(all.end(), more_endpoints.begin(), more_endpoints.end());
    return all;
  }

  /// Whether the store shares the port of the rendezvous, as with torchrun's static backend.
  bool shares_port() const { return rules.fixed_ranks && !rank0_store; }
};

}  // namespace ddp::launch
