// A job of several nodes. Each agent keeps one connection to the host of the rendezvous: the agent
// that could bind the endpoint (dynamic), or node rank 0 (static). If a dynamic job loses its host,
// the next node in the order of ranks takes over.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/control_channel.h"
#include "launcher/rendezvous/coordinator.h"
#include "launcher/rendezvous/host_search.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/round_store.h"

namespace ddp::launch {

struct GroupSettings {
  MembershipRules rules;  // the same on all nodes
  std::string host;       // of the endpoint: a name or a numeric address
  int port = 0;
  std::optional<bool> is_host{};  // nullopt: if the endpoint is an address of this machine
  std::chrono::milliseconds connect_timeout{60'000};
  std::string token{};
  bool rank0_store = false;  // rank 0 hosts the workers' store, not the agent of its node

  // This node.
  std::string host_name;
  int local_world_size = 1;
  std::string role;
  int node_rank = -1;
  std::string local_addr{};  // empty: the one that the host sees

  /// The static backend's store has the port of the rendezvous, as torchrun's has.
  bool shares_port() const { return rules.fixed_ranks && !rank0_store; }
};

class GroupRendezvous : public Rendezvous, public PollHandler {
 public:
  explicit GroupRendezvous(GroupSettings settings);
  /// Tells the others what is still to be told.
  ~GroupRendezvous() override;

  void join() override;
  void report_failure(const ProcessFailure& failure) override;
  void report_end(NodeEnd end) override;
  void leave(int signal) override;
  bool has_news() const override { return !news_.empty(); }
  std::optional<JobNews> take_news() override;

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Throws LaunchError if this node cannot take part in the job.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  enum class Stage {
    Idle,
    Searching,
    Greeting,  // the channel is open; not welcome yet
    Member,
    Orphaned,  // static: the host is lost; the round here has to end, and then the job
    Over,
  };

  void search();
  void follow();
  void take_over();
  void host(JobHistory history, std::vector<int> listeners);
  void take_search_results();
  void claim_endpoint();
  std::string own_address() const;
  void say_hello();
  void enter(const Welcome& welcome);
  void refused(const std::string& why);
  void send_join();
  void handle_channel();
  void receive(const ControlMessage& message);
  void receive_as_member(const ControlMessage& message);
  void receive(const Round& round);
  void receive(const Verdict& verdict);
  void lose_host(const std::string& why, bool gone);
  void lose_job(const std::string& text, bool host_is_gone);
  void lose_round();
  void keep_time();
  void tell(JobNews news) { news_.push_back(std::move(news)); }
  void tell_note(const std::string& text);
  void tell_end(const std::string& why);

  GroupSettings settings_;
  std::string id_;
  Stage stage_ = Stage::Idle;
  HostSearch search_;
  RoundStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ControlChannel> channel_;
  int succession_socket_ = -1;  // where this node would host
  int succession_port_ = 0;

  std::deque<JobNews> news_;
  bool wants_round_ = false;
  bool in_round_ = false;       // Start was told, report_end() was not called yet
  bool join_is_due_ = false;    // Restart was told
  bool round_is_lost_ = false;  // with its host; the present host knows nothing of it
  std::optional<Round> last_round_;
  int own_node_ = 0;
  NodeEnd last_end_;
  std::string lost_text_;
  bool host_is_gone_ = false;  // for certain; else it is only silent

  std::chrono::milliseconds heartbeat_{2'000};  // the host's
  std::chrono::milliseconds patience_{4'000};
  Clock::time_point next_beat_{};
  int claims_left_ = 0;  // attempts to listen at the endpoint, too
  Clock::time_point claim_at_{};
  Clock::time_point heard_{};
};

}  // namespace ddp::launch
