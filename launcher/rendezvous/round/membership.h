// Decides which nodes take part in a job, when its rounds begin and end, and what happens when a
// node joins, fails, leaves or is lost. Pure: maps messages and times to messages. Runs on the node
// that hosts the rendezvous.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/round/change_pace.h"
#include "launcher/rendezvous/round/job_history.h"
#include "launcher/rendezvous/round/member.h"
#include "launcher/rendezvous/round/membership_rules.h"
#include "launcher/rendezvous/round/succession.h"
#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

class Membership {
 public:
  using Node = int;
  struct Outgoing {
    Node to;
    std::shared_ptr<const ControlMessage> message;  // one for all that get the same
    bool then_close = false;
  };

  Membership(MembershipRules rules, JobHistory history, Clock::time_point now);

  /// Handles the Hello of a node that connected from `address`.
  void hello(Node node, const Hello& hello, const std::string& address, Clock::time_point now);
  void receive(Node node, const ControlMessage& message, Clock::time_point now);
  /// Handles a lost connection to a node. `certain`: the node has exited, it is not just silent.
  void lost(Node node, const std::string& why, Clock::time_point now, bool certain = true);
  /// Whether the node has announced that it leaves.
  bool is_leaving(Node node) const;
  void tick(Clock::time_point now);
  /// Begins no more rounds, as the host itself leaves; another node takes over.
  void retire() { retired_ = true; }

  std::optional<Clock::time_point> deadline() const;
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  bool over() const { return phase_ == JobPhase::kOver; }
  /// Whether a round has been started, here or by an earlier host.
  bool has_begun() const { return history_.rounds > 0; }
  /// Whether this agent must stop hosting: too few nodes of the last round are here for a mandate,
  /// or one of them knows a later round.
  bool has_lost_mandate(Clock::time_point now) const;
  /// Returns the nodes, with addresses, of a round that only lacks an epoch to begin; nullopt if
  /// there is none.
  std::optional<std::vector<Hello>> awaits_epoch() const;
  /// Proposes that round with `epoch`, unless it can no longer begin.
  void grant_epoch(long long epoch, Clock::time_point now);
  /// The latest epoch of nodes that know a later round than this host; -1 if none does.
  long long later_epoch() const { return later_epoch_; }
  /// Returns the nodes whose workers have all exited with 0 in a round that runs on, as text, and
  /// the first node that still runs; nullopt if there are none.
  std::optional<std::pair<std::string, Node>> partly_done() const;
  /// Epoch of the last proposed round.
  long long epoch() const { return epoch_; }

 private:
  enum class JobPhase { kGathering, kProposed, kRunning, kStopping, kOver };
  std::string objection_to(const Hello& hello) const;
  void take_older_epoch(const Hello& hello);
  void note_later_epoch(long long epoch, bool elector);
  void join(Node node, const Join& join, Clock::time_point now);
  void failed(Node node, const Failed& failed, Clock::time_point now);
  void ended(Node node, const Ended& ended, Clock::time_point now);
  void leave(Node node, const Leave& leave, Clock::time_point now);
  void accepted(Node node, const Accepted& accepted, Clock::time_point now);

  Mandate mandate(bool joined_only) const;
  Mandate mandate_of(const std::vector<Node>& nodes) const;
  bool needs_mandate() const;
  void tell_others(Node node, const std::string& text);
  void tell_spare_node(Node node, const std::string& note);
  void begin(Clock::time_point now);
  void withdraw(Clock::time_point now);
  void count(const Peer& peer, int change);
  std::vector<Node> ready() const;
  std::vector<Node> ranked(const std::vector<Node>& nodes) const;
  std::pair<int, int> place_of(const Peer& peer) const;
  bool all_have_joined() const { return absent_ == 0; }
  bool the_first_have_joined() const;
  std::optional<Clock::time_point> last_call_ends() const;
  void try_start(Clock::time_point now);
  void start(std::vector<Node> nodes);
  std::vector<Successor> successors_among(std::vector<Node> nodes) const;
  void call_in(Node newcomer, Clock::time_point now);
  void stop_round(const std::string& text, bool leaving, Node except);
  void try_judge(Clock::time_point now);
  void judge_departures(Verdict verdict, Clock::time_point now);
  std::vector<ProcessFailure*> ordered_failures();
  void drop_late_failures();
  Outcome outcome() const;
  std::string quarantine(const ProcessFailure& cause);
  std::optional<Node> node_of(const ProcessFailure& failure) const;
  void exclude(Node node, const std::string& why);
  void restart(Verdict verdict, Clock::time_point now);
  void end(Verdict verdict);
  Verdict as_told_to_spare(const Verdict& verdict, const Peer& peer) const;
  void note_waiting(Clock::time_point now);
  void end_without_round(const std::string& why);
  void give_up_joining();
  std::string missing_nodes() const;
  bool is_running(Node node) const;
  std::string name_of(const Peer& peer) const;
  void send(Node node, ControlMessage message, bool then_close = false) {
    send(node, std::make_shared<const ControlMessage>(std::move(message)), then_close);
  }
  void send(Node node, std::shared_ptr<const ControlMessage> message, bool then_close = false) {
    outgoing_.push_back({node, std::move(message), then_close});
  }

  void put_off(Node newcomer, Clock::time_point now);
  void admit_waiting(Clock::time_point now);
  std::string needs_all_text() const;
  std::optional<Clock::time_point> incomplete_at() const;
  void end_if_incomplete(Clock::time_point now);

  MembershipRules rules_;
  JobPhase phase_ = JobPhase::kGathering;
  std::map<Node, Peer> peers_;
  std::map<int, Node> fixed_;  // by --node-rank, with fixed_ranks
  // Counts of peers that are not leaving, so that a job's time does not grow with the square of its
  // nodes.
  int present_ = 0;
  int absent_ = 0;                  // not joined yet
  std::map<Node, Member> members_;  // of the current round
  int running_ = 0;                 // of members_
  int finished_ = 0;
  JobHistory history_;
  bool retired_ = false;
  long long epoch_;
  long long tenure_;                // first epoch that this host may propose
  std::set<std::string> electors_;  // Hello::members of the last round; empty: see history_
  std::vector<Node> awaiting_;      // nodes of a round that needs an epoch
  std::optional<long long> granted_;
  bool behind_ = false;  // a node knows a later round than this host
  long long later_epoch_ = -1;
  Round round_{};               // the last proposed round
  Clock::time_point ticked_{};  // last tick()
  Clock::time_point gathering_since_;
  Clock::time_point reunion_until_;  // deadline for nodes that lost the previous host
  std::optional<Clock::time_point> enough_since_;
  Clock::time_point last_join_;
  ChangePace pace_;
  std::optional<Clock::time_point> admission_at_;  // of waiting newcomers
  std::string last_loss_;                          // a node that was lost while no round ran
  std::size_t kept_failures_ = 0;                  // of all members_
  bool waiting_noted_ = false;
  std::vector<std::string> departures_;  // in this round
  std::vector<std::string> arrivals_;
  std::map<std::string, int> first_to_fail_;  // rounds in which a node was, by Hello::id
  std::string lost_after_end_;                // with fixed_ranks: no further round is possible
  bool leaving_only_ = false;                 // the round only knows of workers that leave
  int reports_ = 0;
  int arrivals_so_far_ = 0;
  std::vector<Outgoing> outgoing_;
};

}  // namespace ddp::launch
