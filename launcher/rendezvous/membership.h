// Which nodes take part in a job, when its rounds begin and end, and what becomes of it when a node
// joins, fails, leaves or is lost. Pure: messages and times go in, messages come out. Run by the
// node that hosts the rendezvous.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/control_messages.h"
#include "launcher/rendezvous/membership_rules.h"
#include "launcher/rendezvous/succession.h"

namespace ddp::launch {

/// What the next host must know of the job.
struct JobHistory {
  int rounds = 0;
  std::vector<RoundEnd> ends{};
  /// Ranks in the last round, by address and port; those of the first nodes will do.
  std::map<std::pair<std::string, int>, int> order{};
  /// After the loss of the host: how many nodes are waited for.
  int expected = 0;
  /// The last round's, and how many of its nodes are dead.
  long long epoch = -1;
  int nodes = 0;
  int dead = 0;
  bool hosted = false;  // it was this agent's
  bool alone = false;   // no mandate is needed for the next round
};

class Membership {
 public:
  using Node = int;
  struct Outgoing {
    Node to;
    ControlMessage message;
    bool then_close = false;
  };

  Membership(MembershipRules rules, JobHistory history, Clock::time_point now);

  /// `address`: where the connection comes from.
  void hello(Node node, const Hello& hello, const std::string& address, Clock::time_point now);
  void receive(Node node, const ControlMessage& message, Clock::time_point now);
  /// The connection to a node is gone; `certain`: and so is the node, which is not only silent.
  void lost(Node node, const std::string& why, Clock::time_point now, bool certain = true);
  /// It has said that it leaves.
  bool is_leaving(Node node) const;
  void tick(Clock::time_point now);
  /// The host itself leaves: it begins no more rounds; another node takes over.
  void retire() { retired_ = true; }

  std::optional<Clock::time_point> deadline() const;
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  bool over() const { return phase_ == JobPhase::Over; }
  /// A round has been started, here or by an earlier host.
  bool has_begun() const { return history_.rounds > 0; }
  /// Too few nodes of the last round are here for a mandate, or one that knows a later round: this
  /// agent must not host any longer.
  bool has_lost_mandate(Clock::time_point now) const;
  /// Of the last round that was proposed.
  long long epoch() const { return epoch_; }

 private:
  enum class JobPhase { Gathering, Proposed, Running, Stopping, Over };
  struct Peer {
    Hello hello;
    std::string address;
    std::string seen;      // numeric, from where it is connected
    bool elector = false;  // was in the last round
    bool ran = false;      // or in an earlier one
    int order = 0;         // in the last round; those that were not in it come after, as they came
    bool joined = false;   // ready for a round
    bool leaving = false;
    int store_port = 0;
  };
  /// A node's part in the present round; stays when the node is lost.
  struct Member {
    std::string name{};
    int rank = 0;  // of the node
    bool accepted = false;
    bool ended = false;
    bool gone = false;
    int first_failure = -1;  // place in the order of reports; -1: none
    Clock::time_point failed_at{};
    Ended end{};
  };

  std::string objection_to(const Hello& hello) const;
  void join(Node node, const Join& join, Clock::time_point now);
  void failed(Node node, const Failed& failed, Clock::time_point now);
  void ended(Node node, const Ended& ended, Clock::time_point now);
  void leave(Node node, const Leave& leave, Clock::time_point now);
  void accepted(Node node, const Accepted& accepted, Clock::time_point now);

  Mandate mandate(bool joined_only) const;
  void tell_spare(Node node, const std::string& note);
  void begin(Clock::time_point now);
  void withdraw(Clock::time_point now);
  void count(const Peer& peer, int change);
  std::vector<Node> ready() const;
  int place_of(const Peer& peer) const;
  bool all_have_joined() const { return absent_ == 0; }
  bool the_first_have_joined() const;
  std::optional<Clock::time_point> last_call_ends() const;
  void try_start(Clock::time_point now);
  void start(std::vector<Node> nodes);
  void call_in(Node newcomer, Clock::time_point now);
  void stop_round(const std::string& text, bool leaving, Node except);
  void try_judge(Clock::time_point now);
  std::vector<ProcessFailure> ordered_failures() const;
  void restart(Verdict verdict, Clock::time_point now);
  void end(Verdict verdict);
  void note_waiting(Clock::time_point now);
  void end_without_round(const std::string& why);
  void give_up_joining();
  std::string missing_nodes() const;
  bool is_running(Node node) const;
  std::string name_of(const Peer& peer) const;
  void send(Node node, ControlMessage message, bool then_close = false);

  MembershipRules rules_;
  JobPhase phase_ = JobPhase::Gathering;
  std::map<Node, Peer> peers_;
  std::map<int, Node> fixed_;  // by --node-rank, with fixed_ranks
  // Of those that do not leave: so that the course of a job takes no time that grows with the
  // square of its nodes.
  int present_ = 0;
  int absent_ = 0;                  // have not joined
  std::map<Node, Member> members_;  // of the present round
  int running_ = 0;                 // of members_
  int finished_ = 0;
  JobHistory history_;
  bool retired_ = false;
  long long epoch_;
  long long tenure_;                // the first epoch that this host may propose
  std::set<std::string> electors_;  // Hello::id of the last round's nodes; empty: see history_
  bool behind_ = false;             // a node knows a later round than this host
  Round round_{};                   // the last one that was proposed
  Clock::time_point gathering_since_;
  Clock::time_point reunion_until_;  // nodes that lost the previous host may take as long
  std::optional<Clock::time_point> enough_since_;
  Clock::time_point last_join_;
  bool waiting_noted_ = false;
  std::vector<std::string> departures_;  // in this round
  std::vector<std::string> arrivals_;
  std::string lost_after_end_;  // with fixed_ranks: no further round is possible
  bool leaving_only_ = false;   // the round was only told that workers leave
  int reports_ = 0;
  int arrivals_so_far_ = 0;
  std::vector<Outgoing> outgoing_;
};

}  // namespace ddp::launch
