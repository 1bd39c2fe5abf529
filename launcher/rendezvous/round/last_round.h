// The last round that a node knows, and its own part in it: a plain struct.
#pragma once

#include <string>

#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

struct LastRound {
  Round round{};
  int node = 0;            // this node's number under the round's host
  bool took_part = false;  // false: this node was a spare
  bool begun = false;      // known to have begun: all of its nodes have accepted it
  /// The agent that hosted the round. The node may since have connected to another one.
  std::string host_id{};
  Place host{};  // where this node reached it
};

}  // namespace ddp::launch
