#include "launcher/rendezvous/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Reports that come within this time of the first may be told in any order: the network decides.
constexpr auto kSimultaneous = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kSilentWait{3'000};
constexpr int kNewcomer = 1 << 20;  // sorts after all members of the last round

std::string plural_nodes(int count) {
  return fmt::format("{} node{}", count, count == 1 ? "" : "s");
}

int majority_of(int nodes) { return nodes / 2 + 1; }

}  // namespace

Membership::Membership(MembershipRules rules, JobHistory history, Clock::time_point now)
    : rules_(std::move(rules)),
      history_(std::move(history)),
      gathering_since_(now),
      reunion_until_(now +
                     (history_.expected > 0 ? rules_.patience() : std::chrono::milliseconds(0))),
      last_join_(now) {}

std::string Membership::name_of(const Peer& peer) const {
  const std::string who = fmt::format("{} ({})", peer.hello.host, peer.address);
  const int rank = rules_.fixed_ranks ? peer.hello.node_rank : peer.order;
  return rank < kNewcomer ? fmt::format("node {}, {}", rank, who) : "node " + who;
}

void Membership::send(Node node, ControlMessage message, bool then_close) {
  outgoing_.push_back({node, std::move(message), then_close});
}

// What a node that wants to join is told; empty: welcome.
std::string Membership::objection_to(const Hello& hello) const {
  if (hello.run_id != rules_.run_id) {
    return fmt::format(
        "this rendezvous is of the job --rdzv-id={}, not {}; use the same id on all "
        "nodes, or another port for another job",
        rules_.run_id, hello.run_id);
  }
  if (hello.min_nodes != rules_.min_nodes || hello.max_nodes != rules_.max_nodes) {
    return fmt::format(
        "--nnodes is {}:{} here and {}:{} on the host of the rendezvous; use the same on "
        "all nodes",
        hello.min_nodes, hello.max_nodes, rules_.min_nodes, rules_.max_nodes);
  }
  if (hello.max_restarts != rules_.restarts.max_restarts) {
    return fmt::format(
        "--max-restarts is {} here and {} on the host of the rendezvous; use the same on "
        "all nodes",
        hello.max_restarts, rules_.restarts.max_restarts);
  }
  if (over()) return "the job is over";
  if (!rules_.fixed_ranks) return "";
  if (hello.node_rank < 0 || hello.node_rank >= rules_.max_nodes) {
    return fmt::format("--node-rank={}: must be from 0 to {}, as --nnodes={}", hello.node_rank,
                       rules_.max_nodes - 1, rules_.max_nodes);
  }
  for (const auto& [node, peer] : peers_) {
    if (peer.hello.node_rank != hello.node_rank) continue;
    return fmt::format("--node-rank={} is taken by {}, pid {}; give each node its own",
                       hello.node_rank, peer.hello.host, peer.hello.pid);
  }
  return "";
}

void Membership::hello(Node node, const Hello& hello, const std::string& address,
                       Clock::time_point now) {
  if (const std::string why = objection_to(hello); !why.empty())
    return send(node, Refused{why}, /*then_close=*/true);
  Peer peer{.hello = hello, .address = hello.address.empty() ? address : hello.address};
  const auto known =
      std::find(history_.order.begin(), history_.order.end(), std::pair(peer.address, hello.port));
  peer.order = known != history_.order.end() ? static_cast<int>(known - history_.order.begin())
                                             : kNewcomer + arrivals_so_far_++;
  peers_[node] = peer;
  last_join_ = now;
  send(node, Welcome{node, rules_.heartbeat, rules_.patience()});
}

void Membership::receive(Node node, const ControlMessage& message, Clock::time_point now) {
  if (peers_.count(node) == 0) return;
  if (const auto* m = std::get_if<Join>(&message)) join(node, *m, now);
  if (const auto* m = std::get_if<Failed>(&message)) failed(node, *m, now);
  if (const auto* m = std::get_if<Ended>(&message)) ended(node, *m, now);
  if (const auto* m = std::get_if<Leave>(&message)) leave(node, *m, now);
}

void Membership::join(Node node, const Join& join, Clock::time_point now) {
  Peer& peer = peers_.at(node);
  if (is_running(node)) return;
  peer.joined = true;
  peer.store_port = join.port;
  last_join_ = now;
  if (phase_ == JobPhase::Gathering) return try_start(now);
  if (phase_ == JobPhase::Running) call_in(node, now);
}

// A running round ends for a newcomer that there is room for, unless the job is about to end
// anyway.
void Membership::call_in(Node newcomer, Clock::time_point now) {
  const bool finishing = std::any_of(members_.begin(), members_.end(),
                                     [](const auto& entry) { return entry.second.ended; });
  if (rules_.fixed_ranks || finishing || static_cast<int>(members_.size()) >= rules_.max_nodes) {
    return send(newcomer, Note{fmt::format(
                              "{} of at most {} run this job; this one waits as a spare",
                              plural_nodes(static_cast<int>(members_.size())), rules_.max_nodes)});
  }
  arrivals_.push_back(name_of(peers_.at(newcomer)));
  stop_round(
      fmt::format("{} joins; the workers are stopped and started again with it", arrivals_.back()),
      /*leaving=*/false, newcomer);
  try_judge(now);
}

bool Membership::is_running(Node node) const {
  const auto member = members_.find(node);
  return member != members_.end() && !member->second.ended && !member->second.gone;
}

std::vector<Membership::Node> Membership::ready() const {
  std::vector<Node> nodes;
  for (const auto& [node, peer] : peers_) {
    if (peer.joined && !peer.leaving) nodes.push_back(node);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](Node a, Node b) { return place_of(peers_.at(a)) < place_of(peers_.at(b)); });
  return nodes;
}

int Membership::place_of(const Peer& peer) const {
  return rules_.fixed_ranks ? peer.hello.node_rank : peer.order;
}

bool Membership::all_have_joined() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& entry) { return entry.second.joined || entry.second.leaving; });
}

// A spare that is ready must not take the place of a node that joins again in a moment.
bool Membership::the_first_have_joined() const {
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
  if (!enough_since_ || history_.rounds > 0) return enough_since_;
  return std::min(*enough_since_ + rules_.last_call, last_join_ + rules_.quiet);
}

void Membership::try_start(Clock::time_point now) {
  if (phase_ != JobPhase::Gathering || retired_ || cut_off_) return;
  auto nodes = ready();
  const int count = static_cast<int>(nodes.size());
  if (count < std::max(rules_.min_nodes, history_.quorum)) {
    enough_since_.reset();
    return;
  }
  if (count < history_.expected && now < reunion_until_) return;
  if (!enough_since_) enough_since_ = now;
  const bool full = count >= rules_.max_nodes && the_first_have_joined();
  if (!full && (!all_have_joined() || now < *last_call_ends())) return;
  for (std::size_t i = static_cast<std::size_t>(rules_.max_nodes); i < nodes.size(); ++i) {
    send(nodes[i], Note{fmt::format("{} run this job; this one waits as a spare",
                                    plural_nodes(rules_.max_nodes))});
  }
  if (count > rules_.max_nodes) nodes.resize(static_cast<std::size_t>(rules_.max_nodes));
  start(std::move(nodes));
}

void Membership::start(std::vector<Node> nodes) {
  Round round;
  round.history = history_.ends;
  round.info.restart_count = history_.rounds++;
  round.info.group_world_size = static_cast<int>(nodes.size());
  const Peer& first = peers_.at(nodes.front());
  round.info.master_addr = rules_.fixed_ranks ? rules_.master_addr : first.address;
  round.info.master_port = rules_.master_port > 0 ? rules_.master_port : first.store_port;
  std::map<std::string, int> role_sizes;
  history_.order.clear();
  for (const Node node : nodes) {
    const Peer& peer = peers_.at(node);
    round.info.world_size += peer.hello.local_world_size;
    role_sizes[peer.hello.role] += peer.hello.local_world_size;
    if (peer.hello.id != rules_.host_id)
      round.successors.push_back({node, peer.address, peer.hello.port});
    history_.order.emplace_back(peer.address, peer.hello.port);
  }
  history_.expected = history_.quorum = 0;
  members_.clear();
  departures_.clear();
  arrivals_.clear();
  leaving_only_ = cut_off_ = false;
  silent_ = 0;
  lost_after_end_.clear();
  reports_ = 0;
  phase_ = JobPhase::Running;
  std::map<std::string, int> role_ranks;
  for (const Node node : nodes) {
    Peer& peer = peers_.at(node);
    round.info.first_role_rank = role_ranks[peer.hello.role];
    round.info.role_world_size = role_sizes[peer.hello.role];
    peer.order = round.info.group_rank;
    peer.joined = false;
    members_[node] = {.name = name_of(peer)};
    send(node, round);
    ++round.info.group_rank;
    round.info.first_rank += peer.hello.local_world_size;
    role_ranks[peer.hello.role] += peer.hello.local_world_size;
  }
}

void Membership::stop_round(const std::string& text, bool leaving, Node except) {
  if (phase_ == JobPhase::Stopping && (leaving || !leaving_only_)) return;
  phase_ = JobPhase::Stopping;
  leaving_only_ = leaving;
  for (const auto& [node, member] : members_) {
    if (node != except && is_running(node)) send(node, Stop{leaving, text});
  }
}

void Membership::failed(Node node, const Failed& failed, Clock::time_point now) {
  if (!is_running(node)) return;
  Member& member = members_.at(node);
  if (member.first_failure < 0) {
    member.first_failure = reports_++;
    member.failed_at = now;
  }
  const bool preempted = is_preemption(rules_.restarts, failed.failure.exit);
  const std::string what =
      failed.failure.is_worker()
          ? fmt::format("rank {}: {}", failed.failure.rank, describe_exit(failed.failure.exit))
          : failed.failure.cause;
  stop_round(fmt::format("{}: {}; the workers here are {}", member.name, what,
                         preempted ? "about to leave as well" : "stopped"),
             preempted, node);
}

void Membership::ended(Node node, const Ended& ended, Clock::time_point now) {
  if (!is_running(node)) return;
  if (!ended.failures.empty()) failed(node, Failed{ended.failures.front()}, now);
  Member& member = members_.at(node);
  member.ended = true;
  member.end = ended;
  for (ProcessFailure& failure : member.end.failures) failure.host = peers_.at(node).hello.host;
  try_judge(now);
}

void Membership::leave(Node node, const Leave& leave, Clock::time_point now) {
  Peer& peer = peers_.at(node);
  peer.leaving = true;
  const std::string text =
      fmt::format("{} leaves the job ({})", name_of(peer),
                  leave.signal != 0 ? signal_name(leave.signal) : "its launcher was killed");
  if (is_running(node)) {
    departures_.push_back(text);
    stop_round(text + "; the workers here are stopped", /*leaving=*/false, node);
  } else if (phase_ == JobPhase::Gathering && rules_.fixed_ranks) {
    end_without_round(text);
  } else if (phase_ == JobPhase::Gathering) {
    try_start(now);
  }
}

void Membership::lost(Node node, const std::string& why, Clock::time_point now, bool certain) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return;
  const Peer peer = found->second;
  peers_.erase(found);
  if (over()) return;
  if (is_running(node)) {
    members_.at(node).gone = true;
    silent_ += certain ? 0 : 1;
    cut_off_ = !rules_.fixed_ranks && silent_ >= majority_of(static_cast<int>(members_.size()));
    if (!peer.leaving) {
      departures_.push_back(fmt::format("{} was lost: {}", name_of(peer), why));
      stop_round(departures_.back() + "; the workers here are stopped", /*leaving=*/false, node);
    }
    return try_judge(now);
  }
  if (rules_.fixed_ranks && phase_ != JobPhase::Gathering)
    lost_after_end_ = name_of(peer) + " has finished and gone";
  if (phase_ != JobPhase::Gathering) return;
  if (rules_.fixed_ranks && history_.rounds > 0)
    return end_without_round(fmt::format("{} was lost: {}", name_of(peer), why));
  try_start(now);
}

std::vector<ProcessFailure> Membership::ordered_failures() const {
  std::vector<const Member*> failing;
  for (const auto& [node, member] : members_) {
    if (member.first_failure >= 0) failing.push_back(&member);
  }
  std::sort(failing.begin(), failing.end(),
            [](const Member* a, const Member* b) { return a->first_failure < b->first_failure; });
  std::vector<ProcessFailure> failures;
  std::ptrdiff_t simultaneous = 0;
  for (const Member* member : failing) {
    failures.insert(failures.end(), member->end.failures.begin(), member->end.failures.end());
    if (member->failed_at - failing.front()->failed_at < kSimultaneous)
      simultaneous = std::ssize(failures);
  }
  // A worker that was killed takes its peers with it, and their reports may come before its own.
  const auto rank = [&](const ProcessFailure& failure) {
    return is_preemption(rules_.restarts, failure.exit) ? 2 : failure.exit.signal == 0 ? 1 : 0;
  };
  std::stable_sort(failures.begin(), failures.begin() + simultaneous,
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return failures;
}

// A departure explains the failures of the workers that it has left behind.
void Membership::try_judge(Clock::time_point now) {
  if (phase_ != JobPhase::Running && phase_ != JobPhase::Stopping) return;
  for (const auto& [node, member] : members_) {
    if (is_running(node)) return;
  }
  Verdict verdict;
  verdict.failures = ordered_failures();
  verdict.outcome = outcome_of(rules_.restarts, verdict.failures);
  if (!departures_.empty()) {
    const std::string text = fmt::format("{}", fmt::join(departures_, "; "));
    if (!rules_.fixed_ranks) {
      verdict.failures.clear();
      verdict.text = "starting again without it: " + text;
      return restart(std::move(verdict), now);
    }
    const bool saved = std::all_of(members_.begin(), members_.end(),
                                   [](const auto& entry) { return entry.second.end.preempted; });
    verdict.outcome = saved ? Outcome::Preempted : Outcome::Failed;
    verdict.failures.insert(verdict.failures.begin(), job_failure(text));
    return end(std::move(verdict));
  }
  if (!verdict.failures.empty()) {
    history_.ends.push_back(round_end(verdict.failures.front()));
    verdict.verdict = judge_restart(rules_.restarts, history_.ends);
    if (verdict.verdict.restart && !lost_after_end_.empty()) {
      verdict.verdict = {.number = verdict.verdict.number,
                         .gave_up = lost_after_end_ + ", and each --node-rank is needed"};
    }
    if (!verdict.verdict.restart) return end(std::move(verdict));
    verdict.text =
        restart_text(verdict.failures.front(), verdict.verdict, rules_.restarts.max_restarts);
    return restart(std::move(verdict), now);
  }
  const bool finished = std::none_of(members_.begin(), members_.end(),
                                     [](const auto& entry) { return entry.second.end.stopped; });
  if (arrivals_.empty() || finished) return end(std::move(verdict));
  verdict.text = fmt::format("restarting with {}", fmt::join(arrivals_, ", "));
  restart(std::move(verdict), now);
}

void Membership::restart(Verdict verdict, Clock::time_point now) {
  verdict.outcome = Outcome::Succeeded;
  verdict.verdict.restart = true;
  phase_ = JobPhase::Gathering;
  gathering_since_ = now + verdict.verdict.delay;
  enough_since_.reset();
  waiting_noted_ = false;
  for (const auto& [node, member] : members_) {
    if (!member.gone) send(node, verdict);
  }
  members_.clear();
  try_start(now);
}

void Membership::end(Verdict verdict) {
  phase_ = JobPhase::Over;
  verdict.over = true;
  for (const auto& [node, peer] : peers_) {
    Verdict own = verdict;
    if (members_.count(node) == 0 && own.failures.empty())
      own.text = "the job has ended; this node was a spare";
    send(node, own, /*then_close=*/true);
  }
}

void Membership::end_without_round(const std::string& why) {
  Verdict verdict;
  verdict.outcome = Outcome::Failed;
  verdict.failures = {job_failure(why)};
  end(std::move(verdict));
}

std::string Membership::missing_nodes() const {
  std::vector<int> missing;
  for (int rank = 0; rank < rules_.max_nodes; ++rank) {
    const bool here = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
      return entry.second.hello.node_rank == rank;
    });
    if (!here) missing.push_back(rank);
  }
  return fmt::format("; missing: --node-rank={}", fmt::join(missing, ", "));
}

void Membership::give_up_joining() {
  const int count = static_cast<int>(ready().size());
  end_without_round(fmt::format("{} of at least {} joined within {} (--rdzv-conf=join_timeout){}",
                                plural_nodes(count), rules_.min_nodes,
                                seconds_text(rules_.join_timeout),
                                rules_.fixed_ranks ? missing_nodes() : ""));
}

std::optional<Clock::time_point> Membership::deadline() const {
  if (phase_ != JobPhase::Gathering) return std::nullopt;
  auto give_up = gathering_since_ + rules_.join_timeout;
  if (!waiting_noted_) give_up = std::min(give_up, gathering_since_ + kSilentWait);
  if (history_.expected > 0 && !enough_since_) return std::min(give_up, reunion_until_);
  if (!enough_since_) return give_up;
  return all_have_joined() ? last_call_ends() : std::optional(give_up);
}

// Without this line a user would not know why nothing happens.
void Membership::note_waiting(Clock::time_point now) {
  if (waiting_noted_ || now < gathering_since_ + kSilentWait) return;
  waiting_noted_ = true;
  const int count = static_cast<int>(ready().size());
  const std::string text = fmt::format(
      "waiting for nodes: {} of at least {} here, for {} at most{}", count, rules_.min_nodes,
      seconds_text(rules_.join_timeout), rules_.fixed_ranks ? missing_nodes() : "");
  for (const Node node : ready()) send(node, Note{text});
}

// Two halves of a job that cannot see each other must not both go on.
bool Membership::lacks_quorum() const { return static_cast<int>(peers_.size()) < history_.quorum; }

void Membership::tick(Clock::time_point now) {
  try_start(now);
  if (phase_ != JobPhase::Gathering) return;
  if (lacks_quorum() && now >= reunion_until_) {
    return end_without_round(fmt::format(
        "the host of the rendezvous is silent, and {} of the last round's {} are no majority: the "
        "others may still be at work, so this part of the job ends",
        peers_.size(), plural_nodes(static_cast<int>(history_.order.size()) + 1)));
  }
  note_waiting(now);
  if (now >= gathering_since_ + rules_.join_timeout) give_up_joining();
}

}  // namespace ddp::launch
