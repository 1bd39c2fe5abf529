// The host of a rendezvous in a process of its own, with what an agent has in its loop for that.
#pragma once

#include <sys/types.h>

#include "launcher/rendezvous/round/membership.h"

namespace ddp::test {

class SimulatedHost {
 public:
  /// Hosts a job of at most `nodes` nodes and at least half as many.
  SimulatedHost(int nodes, const launch::JobHistory& history);
  ~SimulatedHost();
  SimulatedHost(const SimulatedHost&) = delete;
  SimulatedHost& operator=(const SimulatedHost&) = delete;

  launch::MembershipRules rules() const;
  int min_nodes() const { return max_nodes_ / 2 > 1 ? max_nodes_ / 2 : 1; }
  int max_nodes() const { return max_nodes_; }
  int port() const { return ports_[0]; }
  int store_port() const { return ports_[1]; }
  /// Since it began.
  double cpu_seconds() const;
  long resident_kib() const;
  void kill() const;
  /// Waits for it. True: the job was over and it exited with 0.
  bool ends_well();

 private:
  int max_nodes_;
  pid_t pid_ = 0;
  int ports_[2] = {};
};

}  // namespace ddp::test
