// A job of several nodes. Each agent keeps one connection to the host of the rendezvous: the agent
// that could bind the endpoint (dynamic), or node rank 0 (static). If that connection ends, the
// node connects again; if a dynamic job loses its host, another node takes over: see Succession.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/control_channel.h"
#include "launcher/rendezvous/coordinator.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/host_search.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/round_store.h"
#include "launcher/rendezvous/session.h"
#include "launcher/rendezvous/signpost.h"
#include "launcher/rendezvous/succession.h"

namespace ddp::launch {

/// Until a line says what is waited for.
inline constexpr std::chrono::milliseconds kSilentWait{3'000};

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
    Lost,      // the host is lost, and the next one not decided
    Member,
    Orphaned,  // static: the host is lost; the round here has to end, and then the job
    Over,
  };

  /// While the host is lost.
  struct Loss {
    Succession succession;
    Inquiry inquiry;
    Clock::time_point since;
    bool noted = false;
  };

  void search();
  void reconnect(const std::string& why);
  void retry();
  void succeed();
  void find_host();
  void note_loss(Clock::time_point now);
  void redirect(const Status& status);
  void take_over(const Mandate& mandate, bool alone);
  void step_down();
  void take_directions();
  void visit_endpoint();
  std::vector<Hello> electors() const;
  Status status() const;
  std::string reach() const;
  void say(const ControlMessage& message);
  /// It is connected, or about to be again.
  bool has_host() const { return stage_ == Stage::Member || resuming_; }
  void leave_candidate(const std::string& why);
  Clock::time_point alone_at() const { return loss_->since + 2 * patience_; }
  void rejoin();
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
  void begin_round();
  void receive(const Verdict& verdict);
  void lose_host(const std::string& why);
  void lose_job(const std::string& text);
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
  Signpost signpost_;
  int succession_port_ = 0;  // where this node would host
  std::string own_numeric_;  // this node's end of its last connection
  Session session_;          // with the host
  std::string host_id_;
  bool resuming_ = false;  // the connection to the host is lost, not yet the host
  std::optional<Clock::time_point> retry_at_;
  std::string reconnect_why_;
  std::optional<Loss> loss_;
  std::optional<Inquiry> visit_;  // at the endpoint, of a host that is elsewhere
  Clock::time_point next_visit_{};
  bool at_endpoint_ = false;
  std::optional<Clock::time_point> waits_since_;  // a newcomer: for the host of the job

  std::deque<JobNews> news_;
  bool wants_round_ = false;
  bool in_round_ = false;            // Start was told, report_end() was not called yet
  bool join_is_due_ = false;         // Restart was told
  bool round_is_lost_ = false;       // with its host; the present host knows nothing of it
  std::optional<Round> last_round_;  // that this node has accepted, or waited for as a spare
  bool proposed_ = false;            // it has not begun here
  long long epoch_ = -1;             // of the last one accepted
  int own_node_ = 0;
  int round_node_ = 0;  // the same in last_round_
  NodeEnd last_end_;
  std::string lost_text_;

  std::chrono::milliseconds heartbeat_{2'000};  // the host's
  std::chrono::milliseconds patience_{4'000};
  Clock::time_point next_beat_{};
  int claims_left_ = 0;  // attempts to listen at the endpoint, too
  Clock::time_point claim_at_{};
  Clock::time_point heard_{};
  Clock::time_point awake_{};    // the last time that this process ran
  Clock::time_point stalled_{};  // it did not for long, until then
};

}  // namespace ddp::launch
