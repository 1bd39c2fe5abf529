// The rendezvous of several nodes. Each agent keeps one connection to the host of the rendezvous:
// the agent that could bind the endpoint (dynamic), or node rank 0 (static). If that connection
// ends, the node reconnects; if a dynamic job loses its host, another node takes over as its
// Authority decides.
//
// Owns this node's sockets, files and timers. Decides nothing: GroupNode does, of whose events and
// actions this is the other end.
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
#include "launcher/rendezvous/group_node.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/host/coordinator.h"
#include "launcher/rendezvous/host/round_store.h"
#include "launcher/rendezvous/host/signpost.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/wire/control_channel.h"

namespace ddp::launch {

class GroupRendezvous : public Rendezvous, public PollHandler {
 public:
  /// `authority`: nullptr: the nodes' own Election.
  explicit GroupRendezvous(GroupSettings settings, std::unique_ptr<Authority> authority = nullptr);
  /// Sends what is still queued for the other nodes.
  ~GroupRendezvous() override;

  void connect() override;
  void withdraw(const std::string& why) override { feed(events::Withdraw{why}); }
  void join() override;
  void report_failure(const ProcessFailure& failure) override;
  void report_end(NodeEnd end) override { feed(events::WorkersEnded{std::move(end)}); }
  void leave(int signal) override { feed(events::Leave{signal}); }
  void report_pace(const NodePace& pace, Clock::time_point) override { feed(events::Paced{pace}); }
  void ask_for_stacks() override { feed(events::Inspected{Alive{.stacks = true}}); }
  void ask_for_status() override { feed(events::Inspected{Alive{.asks_status = true}}); }
  void report_status(const NodeStatus& status) override {
    feed(events::Inspected{Alive{.status = status}});
  }
  std::optional<Straggler> straggler() const override { return node_.state().host.straggler; }
  std::optional<PartlyDone> partly_done() const override { return node_.state().host.partly_done; }
  bool has_news() const override { return !news_.empty(); }
  std::optional<JobNews> take_news() override { return take_oldest(news_); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Throws LaunchError if this node cannot take part in the job.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  void feed(const NodeEvent& event);
  void execute(NodeAction action);
  Sight sight() const;

  void read_members();
  void obey_authority();
  void handle_signpost(const std::vector<pollfd>& fds);
  void read_replies(const std::vector<pollfd>& fds);
  void visit_endpoints();
  void take_search_results();
  void handle_coordinator(const std::vector<pollfd>& fds);
  void handle_channel();
  void ask_authority();

  void open_port(const std::string& address);
  void host(actions::Host action);
  void step_down(const std::string& why);
  void claim_endpoints();
  void say_hello();
  void tell_note(const std::string& text);

  std::unique_ptr<Authority> authority_;
  GroupNode node_;
  HostSearch search_;
  RoundStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ControlChannel> channel_;
  Signpost signpost_;  // at the place where this node would host
  MembersFile members_file_;
  EndpointWatch watch_;
  std::optional<Inquiry> leads_;  // asks the places of a Candidacy
  std::optional<Inquiry> visit_;  // asks at the endpoints that this node does not listen at
  Clock::time_point next_visit_{};
  std::deque<JobNews> news_;
};

}  // namespace ddp::launch
