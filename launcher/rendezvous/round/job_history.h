// The state of a job that the next host needs: a plain struct.
#pragma once

#include <map>
#include <string>

#include "launcher/rendezvous/restart_policy.h"

namespace ddp::launch {

struct JobHistory {
  int rounds = 0;
  RestartTally tally{};
  int changes = 0;  // consecutive rounds soon ended by joining or leaving nodes
  /// Ranks in the last round, by Hello::member; the first nodes' suffice.
  std::map<std::string, int> order{};
  /// Number of nodes to wait for after the loss of the host.
  int expected = 0;
  /// The last round's epoch, number of nodes, and how many of them are dead.
  long long epoch = -1;
  std::string job{};  // RendezvousInfo::job; empty: there was no round
  int nodes = 0;
  int dead = 0;
  bool hosted = false;  // this agent hosted it
  bool begun = true;    // it is known to have begun
  bool alone = false;   // no mandate is needed for the next round
  /// Epoch of a later round that never ran, as no member of the last round knows it; the next epoch
  /// follows it.
  long long unused = -1;
};

}  // namespace ddp::launch
