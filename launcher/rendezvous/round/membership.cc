#include "launcher/rendezvous/round/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/base/signal_names.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/round/epochs.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kNewcomer = 1 << 20;  // sorts after all members of the last round

}  // namespace

Membership::Membership(MembershipRules rules, JobHistory history, Clock::time_point now)
    : rules_(std::move(rules)),
      history_(std::move(history)),
      epoch_(std::max(history_.epoch, history_.unused)),
      tenure_(tenure_after(epoch_, rules_.host_id)),
      gathering_since_(now),
      reunion_until_(now +
                     (history_.expected > 0 ? rules_.patience() : std::chrono::milliseconds(0))),
      last_join_(now),
      pace_(rules_.restarts, rules_.quiet, history_.changes) {
  pace_.node_changes(now);
}

std::string Membership::name_of(const Peer& peer) const {
  const std::string who = fmt::format("{} ({})", peer.hello.host, peer.address);
  const int rank = rules_.fixed_ranks ? peer.hello.node_rank : peer.order;
  return rank < kNewcomer ? fmt::format("node {}, {}", rank, who) : "node " + who;
}

// Why a node may not join; empty: it may.
std::string Membership::objection_to(const Hello& hello) const {
  if (hello.run_id != rules_.run_id) {
    return fmt::format(
        "this rendezvous is of the job --rdzv-id={}, not {}; use the same id on all "
        "nodes, or another port for another job",
        rules_.run_id, hello.run_id);
  }
  const auto differs = [](std::string_view option, const auto& here, const auto& there) {
    return fmt::format("its {} is {}, this job's is {}; use the same on all nodes", option, here,
                       there);
  };
  if (hello.min_nodes != rules_.min_nodes || hello.max_nodes != rules_.max_nodes) {
    return differs("--nnodes", fmt::format("{}:{}", hello.min_nodes, hello.max_nodes),
                   fmt::format("{}:{}", rules_.min_nodes, rules_.max_nodes));
  }
  if (hello.max_restarts != rules_.restarts.max_restarts)
    return differs("--max-restarts", hello.max_restarts, rules_.restarts.max_restarts);
  for (const auto& [option, value] : agreed_values(rules_)) {
    const auto theirs = hello.agreed.find(option);
    if (theirs == hello.agreed.end()) return differs(option, "unknown", value);
    if (theirs->second != value) return differs(option, theirs->second, value);
  }
  if (over()) return "the job is over";
  if (!rules_.fixed_ranks) return "";
  if (hello.node_rank < 0 || hello.node_rank >= rules_.max_nodes) {
    return fmt::format("--node-rank={}: must be from 0 to {}, as --nnodes={}", hello.node_rank,
                       rules_.max_nodes - 1, rules_.max_nodes);
  }
  const auto owner = fixed_.find(hello.node_rank);
  if (owner == fixed_.end()) return "";
  const Hello& other = peers_.at(owner->second).hello;
  return fmt::format("--node-rank={} is taken by {}, pid {}; give each node its own",
                     hello.node_rank, other.host, other.pid);
}

void Membership::hello(Node node, const Hello& hello, const std::string& address,
                       Clock::time_point now) {
  if (const std::string why = objection_to(hello); !why.empty())
    return send(node, Refused{why}, /*then_close=*/true);
  Peer peer{.hello = hello,
            .address = hello.address.empty() ? address : hello.address,
            .seen = address,
            .ran = hello.epoch >= 0};
  const bool rivals = hello.epoch < history_.epoch && !may_precede(hello.epoch, history_.epoch);
  const bool named = history_.order.count(hello.member) > 0 && !rivals;
  peer.elector = electors_.empty() ? history_.nodes > 0 && (hello.epoch == history_.epoch || named)
                                   : electors_.count(hello.member) > 0;
  take_older_epoch(hello);
  if (rules_.epochs_are_granted) epoch_ = granted_after(epoch_, {&hello.epoch, 1}) - 1;
  note_later_epoch(hello.epoch, peer.elector);
  const auto known = history_.order.find(hello.member);
  peer.order = known != history_.order.end() ? known->second : kNewcomer + arrivals_so_far_++;
  peers_[node] = peer;
  if (rules_.fixed_ranks) fixed_[hello.node_rank] = node;
  count(peer, +1);
  last_join_ = now;
  pace_.node_changes(now);
  send(node, Welcome{.node = node,
                     .heartbeat = rules_.heartbeat,
                     .patience = rules_.patience(),
                     .session = rules_.host_id});
}

// A node that accepted a later round than this host's last one: its job may have gone on without
// this host. Unless it is a stranger to the last round, whose members this host has asked since.
void Membership::note_later_epoch(long long epoch, bool elector) {
  const auto last = elector ? history_.epoch : std::max(history_.epoch, history_.unused);
  const bool later = (epoch > last && epoch < tenure_) || epoch > epoch_;
  if (!later || rules_.epochs_are_granted || !can_follow(epoch, epoch_)) return;
  behind_ = true;
  later_epoch_ = std::max(later_epoch_, epoch);
}

// A new job of nodes whose last job has ended: its epochs continue from that one's.
void Membership::take_older_epoch(const Hello& hello) {
  const bool fresh = phase_ == JobPhase::kGathering && history_.nodes == 0 && history_.rounds == 0;
  if (rules_.fixed_ranks || !fresh || !hello.returned || hello.epoch <= epoch_) return;
  if (!can_follow(hello.epoch, epoch_)) return;
  history_.epoch = epoch_ = hello.epoch;
  tenure_ = tenure_after(epoch_, rules_.host_id);
}

void Membership::receive(Node node, const ControlMessage& message, Clock::time_point now) {
  if (peers_.count(node) == 0) return;
  if (const auto* m = std::get_if<Join>(&message)) join(node, *m, now);
  if (const auto* m = std::get_if<Failed>(&message)) failed(node, *m, now);
  if (const auto* m = std::get_if<Ended>(&message)) ended(node, *m, now);
  if (const auto* m = std::get_if<Leave>(&message)) leave(node, *m, now);
  if (const auto* m = std::get_if<Accepted>(&message)) accepted(node, *m, now);
}

// Nobody may begin a round without one: see Succession.
Mandate Membership::mandate_of(const std::vector<Node>& nodes) const {
  Mandate mandate{.nodes = history_.nodes,
                  .dead = history_.dead,
                  .hosted = history_.hosted,
                  .begun = history_.begun};
  for (const Node node : nodes) {
    const Peer& peer = peers_.at(node);
    mandate.followers += peer.elector ? 1 : 0;
    mandate.returned += peer.elector && peer.hello.returned ? 1 : 0;
  }
  return mandate;
}

Mandate Membership::mandate(bool joined_only) const {
  std::vector<Node> following;
  for (const auto& [node, peer] : peers_) {
    if (!peer.leaving && (peer.joined || !joined_only)) following.push_back(node);
  }
  return mandate_of(following);
}

bool Membership::needs_mandate() const {
  return !rules_.fixed_ranks && !rules_.epochs_are_granted && !history_.alone;
}

bool Membership::has_lost_mandate(Clock::time_point now) const {
  if (rules_.fixed_ranks || rules_.epochs_are_granted || retired_ || over()) return false;
  if (behind_) return true;
  return phase_ == JobPhase::kGathering && now >= reunion_until_ && needs_mandate() &&
         !mandate(/*joined_only=*/false).holds();
}

bool Membership::is_leaving(Node node) const {
  const auto found = peers_.find(node);
  return found == peers_.end() || found->second.leaving;
}

void Membership::join(Node node, const Join& join, Clock::time_point now) {
  Peer& peer = peers_.at(node);
  if (is_running(node)) return;
  count(peer, -1);
  peer.joined = true;
  count(peer, +1);
  peer.store_port = join.port;
  last_join_ = now;
  if (phase_ == JobPhase::kGathering) return try_start(now);
  if (phase_ == JobPhase::kRunning) call_in(node, now);
}

void Membership::tell_spare_node(Node node, const std::string& note) {
  const std::string advice =
      rules_.own_id ? "" : "; if this is another job, give each job its own --rdzv-id";
  send(node, Note{note + advice});
  send(node, Standby{round_});
}

// A running round ends for a newcomer that there is room for, unless the job is about to end
// anyway.
void Membership::call_in(Node newcomer, Clock::time_point now) {
  if (!rules_.fixed_ranks && finished_ > 0) {
    return tell_spare_node(newcomer,
                           "a node has finished its part already; this one waits as a spare");
  }
  if (rules_.fixed_ranks || static_cast<int>(members_.size()) >= rules_.max_nodes) {
    return tell_spare_node(newcomer,
                           fmt::format("{} of at most {} run this job; this one waits as a spare",
                                       plural(std::ssize(members_), "node"), rules_.max_nodes));
  }
  if (now < pace_.admission()) return put_off(newcomer, now);
  arrivals_.push_back(name_of(peers_.at(newcomer)));
  stop_round(fmt::format("{} joins; restarting the workers with it", arrivals_.back()),
             /*leaving=*/false, newcomer);
  try_judge(now);
}

bool Membership::is_running(Node node) const {
  const auto member = members_.find(node);
  return phase_ != JobPhase::kProposed && member != members_.end() && !member->second.ended &&
         !member->second.gone;
}

void Membership::count(const Peer& peer, int change) {
  if (!peer.leaving) (peer.joined ? present_ : absent_) += change;
}

std::vector<Membership::Node> Membership::ready() const {
  std::vector<std::pair<std::pair<int, int>, Node>> places;
  for (const auto& [node, peer] : peers_) {
    if (peer.joined && !peer.leaving) places.emplace_back(place_of(peer), node);
  }
  std::sort(places.begin(), places.end());
  std::vector<Node> nodes;
  for (const auto& [place, node] : places) nodes.push_back(node);
  return nodes;
}

// Who is first takes part. Without those of the last round no node may begin the next one. Then
// comes the host, which has had no part in it.
std::pair<int, int> Membership::place_of(const Peer& peer) const {
  if (rules_.fixed_ranks) return {0, peer.hello.node_rank};
  const bool hosts = !rules_.epochs_are_granted && peer.hello.id == rules_.host_id;
  return {peer.elector ? 0 : hosts ? 1 : 2, peer.order};
}

// A spare that is ready must not take the place of a node that joins again in a moment.
bool Membership::the_first_have_joined() const {
  if (all_have_joined()) return true;
  std::vector<const Peer*> staying;
  for (const auto& [node, peer] : peers_) {
    if (!peer.leaving) staying.push_back(&peer);
  }
  std::sort(staying.begin(), staying.end(),
            [&](const Peer* a, const Peer* b) { return place_of(*a) < place_of(*b); });
  staying.resize(std::min(staying.size(), static_cast<std::size_t>(rules_.max_nodes)));
  return std::all_of(staying.begin(), staying.end(), [](const Peer* peer) { return peer->joined; });
}

// Only the first round waits for more nodes than it needs.
std::optional<Clock::time_point> Membership::last_call_ends() const {
  if (!enough_since_) return std::nullopt;
  if (history_.rounds > 0) return pace_.settled_at(*enough_since_);
  return std::min(*enough_since_ + rules_.last_call, last_join_ + rules_.quiet);
}

void Membership::try_start(Clock::time_point now) {
  awaiting_.clear();
  if (phase_ != JobPhase::kGathering || retired_ || behind_) return;
  const int count = present_;
  const bool entitled = !needs_mandate() || mandate(/*joined_only=*/true).holds();
  if (count < rules_.min_nodes || !entitled) {
    enough_since_.reset();
    return;
  }
  if (count < history_.expected && now < reunion_until_) return;
  if (!enough_since_) enough_since_ = now;
  const bool full = count >= rules_.max_nodes && the_first_have_joined();
  if (!full && (!all_have_joined() || now < *last_call_ends())) return;
  auto nodes = ready();
  nodes.resize(std::min(nodes.size(), static_cast<std::size_t>(rules_.max_nodes)));
  if (needs_mandate() && !mandate_of(nodes).holds()) return;
  if (rules_.epochs_are_granted && !granted_) {
    awaiting_ = std::move(nodes);
  } else {
    start(ranked(nodes));
  }
}

// Picks some from all parts of the order: neighbours are lost together, as a rack is.
std::vector<Successor> Membership::successors_among(std::vector<Node> nodes) const {
  std::erase_if(nodes, [&](Node node) { return peers_.at(node).hello.id == rules_.host_id; });
  const auto count = std::min(nodes.size(), kMaxSuccessors);
  std::vector<Successor> successors;
  for (std::size_t i = 0; i < count; ++i) {
    const Node node = nodes[i * nodes.size() / count];
    const Peer& peer = peers_.at(node);
    const bool numeric = parse_address(peer.address, 0).has_value();
    successors.push_back(
        {node, numeric ? peer.address : peer.seen, peer.hello.port, peer.hello.member});
  }
  return successors;
}

// Its nodes are asked to accept it; Go follows.
void Membership::start(std::vector<Node> nodes) {
  Round round;
  round.tally = history_.tally;
  round.changes = pace_.changes();
  epoch_ = granted_.value_or(std::max(epoch_ + 1, tenure_));
  round.info.epoch = epoch_;
  if (history_.job.empty()) history_.job = rules_.host_id;
  round.info.job = history_.job;
  round.info.restart_count = history_.rounds;
  round.info.group_world_size = static_cast<int>(nodes.size());
  const Peer& first = peers_.at(nodes.front());
  round.info.master_addr = rules_.fixed_ranks ? rules_.master_addr : first.address;
  round.info.master_port = rules_.master_port > 0 ? rules_.master_port : first.store_port;
  std::map<std::string, int> role_sizes;
  for (const Node node : nodes) {
    const Peer& peer = peers_.at(node);
    round.info.world_size += peer.hello.local_world_size;
    role_sizes[peer.hello.role] += peer.hello.local_world_size;
  }
  round.successors = successors_among(nodes);
  round_ = round;
  round_.info.role_world_size = round.info.world_size;  // a spare has no part in any role
  members_.clear();
  phase_ = JobPhase::kProposed;
  std::map<std::string, int> role_ranks;
  for (const Node node : nodes) {
    const Peer& peer = peers_.at(node);
    round.info.first_role_rank = role_ranks[peer.hello.role];
    round.info.role_world_size = role_sizes[peer.hello.role];
    members_[node] = {.rank = round.info.group_rank};
    send(node, round);
    ++round.info.group_rank;
    round.info.first_rank += peer.hello.local_world_size;
    role_ranks[peer.hello.role] += peer.hello.local_world_size;
  }
}

void Membership::accepted(Node node, const Accepted& accepted, Clock::time_point now) {
  const auto member = members_.find(node);
  const bool proposed = phase_ == JobPhase::kProposed && accepted.epoch == round_.info.epoch;
  if (!proposed || member == members_.end()) return;
  member->second.accepted = true;
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const auto& entry) { return entry.second.accepted; });
  if (all) begin(now);
}

void Membership::withdraw(Clock::time_point now) {
  phase_ = JobPhase::kGathering;
  members_.clear();
  try_start(now);
}

void Membership::begin(Clock::time_point now) {
  phase_ = JobPhase::kRunning;
  running_ = round_.info.group_world_size;
  finished_ = reports_ = 0;
  pace_.round_begins(now);
  kept_failures_ = 0;
  departures_.clear();
  arrivals_.clear();
  admission_at_.reset();
  last_loss_.clear();
  leaving_only_ = false;
  lost_after_end_.clear();
  history_.order.clear();
  history_.expected = history_.dead = 0;
  ++history_.rounds;
  history_.epoch = round_.info.epoch;
  history_.nodes = running_;
  history_.alone = false;
  history_.hosted = history_.begun = true;
  electors_.clear();
  for (auto& [node, member] : members_) {
    Peer& peer = peers_.at(node);
    peer.order = member.rank;
    count(peer, -1);
    peer.joined = false;
    count(peer, +1);
    member.name = name_of(peer);
    peer.ran = true;
    peer.hello.returned = false;  // it has a vote of its own from now on
    electors_.insert(peer.hello.member);
    history_.order.emplace(peer.hello.member, member.rank);
    send(node, Go{history_.epoch});
  }
  for (auto& [node, peer] : peers_) {
    peer.elector = members_.count(node) > 0;
    if (phase_ == JobPhase::kRunning && peer.joined && !peer.leaving) call_in(node, now);
  }
}

void Membership::tick(Clock::time_point now) {
  ticked_ = now;
  try_start(now);
  admit_waiting(now);
  end_if_incomplete(now);
  if (phase_ != JobPhase::kGathering) return;
  note_waiting(now);
  if (now >= gathering_since_ + rules_.join_timeout) give_up_joining();
}

}  // namespace ddp::launch
