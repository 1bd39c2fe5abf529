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
#include "launcher/rendezvous/membership.h"
#include "launcher/rendezvous/name_lookup.h"
#include "launcher/rendezvous/port_reservation.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/store/tcp_store_client.h"
#include "launcher/store/tcp_store_server.h"

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

  /// Static, before the first round: the host is torchrun's agent, or one has come to this host.
  bool found_torchrun() const { return found_torchrun_; }
  /// Numeric, of the host.
  const std::string& host_address() const { return present_.address; }
  /// The host no longer takes part, nor does anyone by its rendezvous; its store goes on.
  void only_serve_store();
  /// Serves the store until its clients have gone, or the time is over.
  void see_off_torchrun(Clock::time_point limit);

 private:
  /// Where the host may be.
  struct Candidate {
    std::string address;
    int port = 0;
    bool is_me = false;
  };
  enum class Stage {
    Idle,
    LookingUp,  // the endpoint's name
    Seeking,    // connecting to one candidate after the other
    Greeting,   // connected; not welcome yet
    Open,
    Orphaned,  // the host is lost; the round here has to end first
    Over,
  };

  void look_up();
  void take_addresses();
  void seek();
  void seek_next();
  bool try_to_host();
  void host(JobHistory history, std::vector<int> listeners);
  void follow();
  void take_over();
  void connect(const Candidate& candidate);
  void handle_channel();
  void enter(const ControlMessage& message);
  void receive(const ControlMessage& message);
  void receive(const Round& round);
  void receive(const Verdict& verdict);
  void attempt_failed(const std::string& why);
  void say_hello();
  void send_join();
  int prepare_store();
  void accept_store_clients();
  void look_for_torchrun(const std::vector<pollfd>& fds);
  void host_is_torchruns();
  void close_store_socket();
  void lose_host(const std::string& why, bool gone);
  void keep_time();
  void tell(JobNews news) { news_.push_back(std::move(news)); }
  void tell_end(const std::string& why);
  std::string endpoint_text() const;
  void refuse(const std::string& why);

  GroupSettings settings_;
  Stage stage_ = Stage::Idle;
  std::optional<NameLookup> lookup_;
  std::vector<Candidate> candidates_;
  std::size_t next_candidate_ = 0;
  bool following_ = false;  // the candidates are those of the last round
  Candidate present_;       // the candidate that is tried, or the host
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ControlChannel> channel_;
  int succession_socket_ = -1;  // where this node would host
  int succession_port_ = 0;
  std::optional<Clock::time_point> probe_at_;  // does a TCPStore answer where no ddp-run does?
  std::unique_ptr<TcpStoreClient> probe_;
  bool found_torchrun_ = false;
  TcpStoreServer store_;                       // in use on the first node
  int store_socket_ = -1;                      // c10d: for the coming round's store
  std::optional<PortReservation> store_port_;  // rank0_store
  std::string id_;

  std::deque<JobNews> news_;
  bool wants_round_ = false;
  bool in_round_ = false;  // Start was told, report_end() was not called yet
  std::optional<Round> last_round_;
  int own_node_ = 0;
  NodeEnd last_end_;
  std::string lost_text_;
  bool host_is_gone_ = false;  // for certain; else it is only silent
  int foreign_closes_ = 0;     // connections closed during the handshake, in a row
  std::string last_problem_;
  bool waiting_noted_ = false;

  Clock::time_point give_up_at_{};
  std::optional<Clock::time_point> attempt_ends_;
  std::optional<Clock::time_point> retry_at_;
  std::chrono::milliseconds retry_delay_{0};
  std::chrono::milliseconds heartbeat_{2'000};  // the host's
  std::chrono::milliseconds patience_{4'000};
  Clock::time_point next_beat_{};
  Clock::time_point heard_{};
};

}  // namespace ddp::launch
