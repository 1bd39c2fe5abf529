// A static job of several nodes: ddp-run's own protocol among nodes of ddp-run, torchrun's as soon
// as one of the nodes proves to be torchrun's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/rendezvous/torchrun_rendezvous.h"

namespace ddp::launch {

class StaticRendezvous : public Rendezvous, public PollHandler {
 public:
  explicit StaticRendezvous(GroupSettings settings);
  /// On node 0: until torchrun's agents have read that all nodes have ended.
  ~StaticRendezvous() override;

  void join() override { present().join(); }
  void report_failure(const ProcessFailure& failure) override { present().report_failure(failure); }
  void report_end(NodeEnd end) override { present().report_end(std::move(end)); }
  void leave(int signal) override { present().leave(signal); }
  bool has_news() const override { return present().has_news(); }
  std::optional<JobNews> take_news() override { return present().take_news(); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  Rendezvous& present() const;
  void use_torchruns();

  GroupSettings settings_;
  std::unique_ptr<GroupRendezvous> group_;        // on node 0 always: it serves the store
  std::unique_ptr<TorchrunRendezvous> torchrun_;  // else nullptr
};

}  // namespace ddp::launch
