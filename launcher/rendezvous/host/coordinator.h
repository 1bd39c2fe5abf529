// Hosts the rendezvous: accepts the agents of all nodes, including this one, and runs Membership.
// Exists as long as this agent is the host. Runs in the poll loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/round/membership.h"
#include "launcher/rendezvous/round/straggler_watch.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "launcher/rendezvous/wire/inquiry.h"
#include "launcher/rendezvous/wire/lobby.h"
#include "launcher/rendezvous/wire/session.h"

namespace ddp::launch {

class Coordinator : public PollHandler {
 public:
  /// Takes ownership of an accepted, non-blocking connection of a client of the workers' store,
  /// from which nothing has been read.
  using StoreClients = std::function<void(int fd)>;

  /// Takes ownership of the listening, non-blocking sockets. Without `store_clients`, and before
  /// the first round, connections to the store are closed, which is noted.
  Coordinator(const MembershipRules& rules, JobHistory history, std::string token,
              std::vector<int> listeners, StoreClients store_clients);

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

  /// Takes ownership of a further listening, non-blocking socket.
  void also_listen(int fd);
  /// Releases the listening sockets, for the agent's Signpost once another agent hosts.
  std::vector<int> take_listeners();
  /// Takes over a node that has already sent Hello.
  void adopt(Follower follower);
  /// Sets the address at which other machines reach this host.
  void set_place(const Place& place);
  Status status() const;
  /// Serves after the job is over until all nodes have read the verdict or `limit` has passed.
  void see_off(Clock::time_point limit);
  /// Begins no further rounds, as this node leaves. `hand_over`: refuses connections as soon as the
  /// others have been notified, so that they look for the next host.
  void retire(bool hand_over);
  /// Stops hosting: the nodes stop their workers and look for another host.
  void dismiss(const std::string& why);
  bool over() const { return membership_.over(); }
  /// As in Membership.
  std::optional<std::vector<Hello>> awaits_epoch() const { return membership_.awaits_epoch(); }
  void grant_epoch(long long epoch);
  /// Whether this agent must stop hosting: others may continue, or have continued, without it.
  bool has_lost_mandate() const;
  /// Another agent that knows a later round; nullopt if there is none.
  const std::optional<Status>& superseded_by() const { return superseded_by_; }
  /// The latest epoch that this host has proposed, or that agents without a host know; -1: none.
  long long later_epoch() const;
  void hear(const Status& status);
  /// Returns a line for the user; empty if there is none.
  std::string take_note();

 private:
  struct Connection {
    std::unique_ptr<ControlChannel> channel;
    Clock::time_point heard;    // last message
    Clock::time_point spoke{};  // the same, not adjusted when this process was suspended
    bool closing = false;       // to be closed once everything is sent; no longer read
    short watched = 0;
    std::string id{};  // Hello::id
    Place place{};     // where it replies to queries
    Session session{};
    std::optional<NodePace> pace{};
    Clock::time_point reads_status_until{};  // as it has asked for that of the other nodes
    std::unique_ptr<Inquiry> inquiry{};      // the connection is lost, but perhaps not the node
  };

  void receive_newcomers();
  void serve_some();
  void serve(int node, Connection& connection);
  void forgive_own_silence();
  void keep_time();
  void beat(int asker = 0, const Alive& asked = {});
  using Done = std::optional<std::pair<std::string, int>>;  // Membership::partly_done()
  Alive alive_for(int node, const Connection& connection, const Done& done) const;
  void pass_status(int node, const NodeStatus& status);
  void receive(int node, Connection& connection, const ControlMessage& message,
               Clock::time_point now);
  void greet(int node, const Hello& hello, Clock::time_point now);
  void resume(int from, int node, const Hello& hello);
  bool is_fresh(const Connection& connection) const;
  void ask_lost(Clock::time_point now);
  void lose_closed(int node, Clock::time_point now);
  void lose_silent(Clock::time_point now);
  void expect_word(const Connection& connection);
  void deliver();
  void hand_over();
  void watch(int node, Connection& connection);

  Membership membership_;
  std::string token_;
  StoreClients store_clients_;
  Lobby lobby_;
  std::chrono::milliseconds heartbeat_;
  std::chrono::milliseconds patience_;
  Descriptor epoll_;
  std::size_t max_connections_;
  std::map<int, Connection> connections_;  // by node
  int last_node_ = 0;
  Clock::time_point next_beat_;
  StragglerWatch stragglers_;
  Clock::time_point turn_ = Clock::now();          // when it began; silence is judged by it
  Clock::time_point stalled_until_{};              // this process was suspended or not scheduled
  std::optional<Clock::time_point> next_silence_;  // when a connection may next be silent too long
  std::vector<int> closed_;                        // nodes whose connections were closed
  std::string run_id_;
  std::string id_;
  bool epochs_are_granted_;
  Place place_;
  int asking_ = 0;                       // connections with an inquiry
  std::optional<Status> superseded_by_;  // another agent knows a later round
  bool retired_ = false;
  bool hands_over_ = false;
};

}  // namespace ddp::launch
