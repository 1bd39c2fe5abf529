// The rendezvous of several nodes. Each agent keeps one connection to the host of the rendezvous:
// the agent that could bind the endpoint (dynamic), or node rank 0 (static). If that connection
// ends, the node reconnects; if a dynamic job loses its host, another node takes over as its
// Authority decides.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/authority.h"
#include "launcher/rendezvous/follow/host_search.h"
#include "launcher/rendezvous/follow/members_file.h"
#include "launcher/rendezvous/follow/newcomer.h"
#include "launcher/rendezvous/group_policy.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/host/coordinator.h"
#include "launcher/rendezvous/host/round_store.h"
#include "launcher/rendezvous/host/signpost.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/round/job_history.h"
#include "launcher/rendezvous/round/last_round.h"
#include "launcher/rendezvous/round/succession.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "launcher/rendezvous/wire/session.h"

namespace ddp::launch {

class GroupRendezvous : public Rendezvous, public PollHandler {
 public:
  /// `authority`: nullptr: the nodes' own Election.
  explicit GroupRendezvous(GroupSettings settings, std::unique_ptr<Authority> authority = nullptr);
  /// Sends what is still queued for the other nodes.
  ~GroupRendezvous() override;

  void connect() override;
  void withdraw(const std::string& why) override;
  void join() override;
  void report_failure(const ProcessFailure& failure) override;
  void report_end(NodeEnd end) override;
  void leave(int signal) override;
  void report_pace(const NodePace& pace, Clock::time_point) override { pace_ = pace; }
  std::optional<Straggler> straggler() const override { return straggler_; }
  bool has_news() const override { return !news_.empty(); }
  std::optional<JobNews> take_news() override;

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Throws LaunchError if this node cannot take part in the job.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  using Stage = GroupStage;

  /// State of a node that has no host yet and knows more places than one endpoint.
  struct Candidacy {
    Newcomer newcomer;
    Inquiry inquiry;
    Clock::time_point since;
    bool noted = false;
    bool all_heard = false;  // the endpoint decides
  };

  GroupSituation situation() const;
  void handle_event(GroupEvent event, const std::string& why = "", const Place& place = {});
  void search();
  void wait_for_host();
  void ask_around();
  std::vector<Lead> leads() const;
  bool has_more_endpoints() const;
  void stand();
  void decide();
  void check_last_members();
  void note_standing(Clock::time_point now, const std::string& unknown);
  void host_at_endpoint();
  bool may_greet() const;
  std::optional<Clock::time_point> next_judgement() const;
  void remember(const Round& round, bool took_part);
  void reconnect(const std::string& why);
  void retry();
  void follow(const Place& place);
  void seek();
  void find_host();
  void prepare_place();
  void obey_authority();
  void redirect(const Status& status);
  void take_over();
  void step_down(const std::string& why);
  void make_way(const Place& place);
  void take_directions();
  void visit_endpoint();
  bool watches_endpoints() const;
  Authority::View view() const;
  std::optional<Place> holder() const;
  std::optional<Clock::time_point> hold_note_due() const;
  void note_hold(Clock::time_point now);
  Place place() const { return {reach(), succession_port_}; }
  Status status() const;
  std::string reach() const;
  void say(const ControlMessage& message);
  /// Whether this node has a host, connected or reconnecting.
  bool has_host() const { return stage_ == Stage::kMember || resumes(); }
  bool resumes() const { return sought_ == Sought::kSameHost; }
  bool seeks() const { return sought_ == Sought::kNextHost; }
  void leave_candidate(const std::string& why);
  void rejoin();
  void note_missing_token();
  void host(JobHistory history, std::vector<int> listeners);
  void take_search_results();
  void claim_endpoint();
  std::string own_address() const;
  bool was_alone() const;
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
  void lose_host(const std::string& why, bool gone = false);
  void lose_job(const std::string& text, GroupEvent event = GroupEvent::kLost,
                const Place& place = {});
  void orphan();
  void lose_round();
  void keep_time();
  void tell(JobNews news) { news_.push_back(std::move(news)); }
  void tell_note(const std::string& text);
  void tell_end(const std::string& why);
  void leave_because(const Leave& leave);

  GroupSettings settings_;
  std::string id_;
  std::string member_;  // Hello::member
  Stage stage_ = Stage::kIdle;
  Sought sought_ = Sought::kAnyHost;
  HostSearch search_;
  RoundStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ControlChannel> channel_;
  Signpost signpost_;
  int succession_port_ = 0;  // where this node would host
  std::string own_numeric_;  // this node's address in its last connection
  Session session_;          // with the host
  std::string host_id_;
  std::optional<Clock::time_point> retry_at_;
  std::string reconnect_why_;
  std::unique_ptr<Authority> authority_;
  bool host_gone_ = false;  // the lost host's machine refuses connections
  std::optional<Candidacy> candidacy_;
  bool holds_endpoint_ = false;  // signpost_ listens there
  MembersFile members_file_;
  LastMembers last_members_;        // of an earlier agent of this node
  std::vector<Place> last_others_;  // of the latest round that had other nodes
  bool members_read_ = false;
  bool returned_ = false;  // epoch_ is that agent's
  EndpointWatch watch_;
  std::optional<Inquiry> visit_;           // asks at the endpoints while hosting elsewhere
  std::vector<Inquiry::Finding> callers_;  // hosts that have just asked here
  Clock::time_point next_visit_{};
  bool at_endpoint_ = false;
  std::optional<Clock::time_point> waits_since_;  // when a newcomer began to wait for the host
  Clock::time_point held_since_{};                // by a node without a host; see holder()
  bool hold_noted_ = false;

  std::deque<JobNews> news_;
  bool wants_round_ = false;
  std::optional<Leave> withdrawn_;       // to be sent once this node has a host
  bool in_round_ = false;                // between Start and report_end()
  bool join_is_due_ = false;             // between Restart and join()
  bool round_is_lost_ = false;           // with its host; the current host does not know it
  std::optional<LastRound> last_round_;  // that this node accepted, or saw as a spare node
  bool proposed_ = false;                // last_round_ has not begun here
  long long epoch_ = -1;                 // of the last accepted round
  long long unused_epoch_ = -1;          // JobHistory::unused of the next tenure
  Clock::time_point rests_until_{};      // does not host before, after it has stepped down
  int own_node_ = 0;
  NodeEnd last_end_;
  std::optional<NodePace> pace_;        // of this node
  std::optional<Straggler> straggler_;  // according to the host
  std::string lost_text_;

  std::chrono::milliseconds heartbeat_{3'000};  // as set by the host
  std::chrono::milliseconds patience_{15'000};
  Clock::time_point next_beat_{};
  int claims_left_ = 0;  // attempts left to listen at the endpoint as well
  Clock::time_point claim_at_{};
  Clock::time_point heard_{};
  Clock::time_point awake_{};    // when this process last ran
  Clock::time_point stalled_{};  // end of the last long time in which it did not
};

}  // namespace ddp::launch
