// The rendezvous of a single node. Holds each round's port until the next round.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/restart_rules.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/restart_policy.h"
#include "launcher/rendezvous/round/straggler_watch.h"

namespace ddp::launch {

class LocalRendezvous : public Rendezvous {
 public:
  /// master_port 0: a free port, a new one for each round, so that late packets of an old round are
  /// not delivered. With `agent_store` a socket already listens on the port; else rank 0 will.
  LocalRendezvous(std::string master_addr, int master_port, bool agent_store, RestartRules rules);

  /// Returns where the workers of the next round meet; join() announces it.
  RendezvousInfo next_round();

  void withdraw(const std::string& why) override { news_.push_back(failed_end(why)); }
  void join() override;
  void report_failure(const ProcessFailure&) override {}
  void report_end(NodeEnd end) override;
  void leave(int) override {}
  void report_pace(const NodePace& pace, Clock::time_point now) override {
    stragglers_.look({pace}, now);
  }
  std::optional<Straggler> straggler() const override { return stragglers_.current(); }
  bool has_news() const override { return !news_.empty(); }
  std::optional<JobNews> take_news() override;

 private:
  std::string master_addr_;
  int master_port_;
  bool agent_store_;
  RestartRules rules_;
  std::string job_;
  int rounds_ = 0;
  Descriptor port_;  // of the last round
  RestartTally tally_;
  StragglerWatch stragglers_;
  std::deque<JobNews> news_;
};

}  // namespace ddp::launch
