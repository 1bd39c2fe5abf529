// The rendezvous host's state for each node: plain structs.
#pragma once

#include <string>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

/// A node that is connected.
struct Peer {
  Hello hello;
  std::string address;
  std::string seen;      // numeric address of its connection
  bool elector = false;  // took part in the last round
  bool ran = false;      // took part in that or an earlier round
  int order = 0;         // rank in the last round; newcomers follow in order of arrival
  bool joined = false;   // ready for a round
  bool leaving = false;
  int store_port = 0;
};

/// A node's part in the current round; kept when the node is lost.
struct Member {
  std::string name{};
  int rank = 0;  // of the node
  bool accepted = false;
  bool ended = false;
  bool gone = false;
  bool unsaved = false;    // a failure other than a preemption
  int first_failure = -1;  // position among the reports; -1: none
  Clock::time_point failed_at{};
  Ended end{};
};

}  // namespace ddp::launch
