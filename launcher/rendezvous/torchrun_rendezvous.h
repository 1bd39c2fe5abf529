// A node of ddp-run in a static job whose other nodes are torchrun's: it does as they do. Failures
// stay on their node; restarts are each node's own; there is no membership.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"
#include "launcher/base/restart_rules.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/torchrun_static.h"
#include "launcher/store/tcp_store_client.h"

namespace ddp::launch {

struct TorchrunSettings {
  TorchrunNode node;
  RestartRules restarts;
  std::string master_addr;     // as the user gave it, for the workers
  std::string master_numeric;  // where the store is
  int master_port = 0;
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds exit_timeout{300'000};  // torchrun's own
};

class TorchrunRendezvous : public Rendezvous, public PollHandler {
 public:
  explicit TorchrunRendezvous(TorchrunSettings settings);

  void join() override;
  void report_failure(const ProcessFailure&) override {}
  void report_end(NodeEnd end) override;
  void leave(int) override { leaving_ = true; }
  bool has_news() const override { return !news_.empty(); }
  std::optional<JobNews> take_news() override;

  void add_poll_fds(std::vector<pollfd>& fds) const override { store_.add_poll_fds(fds); }
  /// Throws LaunchError if this node cannot take part in the job.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  void pass_on();
  void start_round();
  void check_joining();
  void check_exit_barrier();

  TorchrunSettings settings_;
  TcpStoreClient store_;
  TorchrunExchange exchange_;
  std::deque<JobNews> news_;
  std::vector<RoundEnd> history_;
  int rounds_ = 0;
  bool leaving_ = false;
  std::optional<Clock::time_point> joining_until_;
  std::optional<Clock::time_point> barrier_until_;
};

}  // namespace ddp::launch
