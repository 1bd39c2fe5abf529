// The course of a round: the order of its nodes, its failures, departures and end, and what becomes
// of the job then.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <tuple>

#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/round/membership.h"
#include "launcher/rendezvous/round/rank_order.h"

namespace ddp::launch {
namespace {

// Reports within this time of the first may arrive in any order.
constexpr auto kSimultaneous = std::chrono::seconds(1);
constexpr std::size_t kMostNamed = 4;

std::string joined_text(const std::vector<std::string>& items) {
  const auto named = static_cast<std::ptrdiff_t>(std::min(items.size(), kMostNamed));
  const std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + named, "; "));
  return items.size() <= kMostNamed
             ? text
             : fmt::format("{}; and {} more", text, items.size() - kMostNamed);
}

std::string soon_text(std::chrono::milliseconds delay) {
  return delay.count() > 0 ? " in " + seconds_text(delay) : "";
}

}  // namespace

// Who takes part depends on who came first; with which rank, on --rank-order.
std::vector<Membership::Node> Membership::ranked(const std::vector<Node>& nodes) const {
  if (rules_.fixed_ranks) return nodes;
  std::vector<NodePlace> places;
  for (const Node node : nodes) {
    const Peer& peer = peers_.at(node);
    places.push_back({peer.hello.sort_key, peer.hello.host, peer.order});
  }
  std::vector<Node> ranked;
  for (const std::size_t i : rank_order(rules_.rank_order, places)) ranked.push_back(nodes[i]);
  return ranked;
}

std::optional<std::vector<Hello>> Membership::awaits_epoch() const {
  if (awaiting_.empty() || phase_ != JobPhase::kGathering || retired_) return std::nullopt;
  std::vector<Hello> nodes;
  for (const Node node : awaiting_) {
    const auto found = peers_.find(node);
    if (found == peers_.end()) continue;
    nodes.push_back(found->second.hello);
    nodes.back().address = found->second.seen;
  }
  return nodes;
}

void Membership::grant_epoch(long long epoch, Clock::time_point now) {
  granted_ = epoch;
  try_start(now);
  granted_.reset();
}

void Membership::stop_round(const std::string& text, bool leaving, Node except) {
  if (phase_ == JobPhase::kStopping && (leaving || !leaving_only_)) return;
  phase_ = JobPhase::kStopping;
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
                         preempted ? "about to leave, too" : "stopped"),
             preempted, node);
}

void Membership::ended(Node node, const Ended& ended, Clock::time_point now) {
  if (!is_running(node)) return;
  if (!ended.failures.empty()) failed(node, Failed{ended.failures.front()}, now);
  Member& member = members_.at(node);
  member.ended = true;
  --running_;
  ++finished_;
  member.end = ended;
  for (ProcessFailure& failure : member.end.failures) {
    failure.host = peers_.at(node).hello.host;
    member.unsaved = member.unsaved || !is_preemption(rules_.restarts, failure.exit);
  }
  kept_failures_ += member.end.failures.size();
  if (kept_failures_ > 4 * kMostFailures) drop_late_failures();
  try_judge(now);
}

void Membership::leave(Node node, const Leave& leave, Clock::time_point now) {
  Peer& peer = peers_.at(node);
  if (!peer.leaving && peer.elector && !peer.hello.returned) ++history_.dead;
  count(peer, -1);
  peer.leaving = true;
  const std::string reason = !leave.why.empty()  ? leave.why
                             : leave.signal != 0 ? signal_name(leave.signal)
                                                 : "its ddp-run was killed";
  const std::string text = fmt::format("{} leaves the job ({})", name_of(peer), reason);
  if (phase_ == JobPhase::kProposed && members_.count(node) > 0) return withdraw(now);
  if (is_running(node)) {
    departures_.push_back(text);
    stop_round(text + "; the workers here are stopped", /*leaving=*/false, node);
  } else if (phase_ == JobPhase::kGathering && rules_.fixed_ranks) {
    end_without_round(text);
  } else if (phase_ == JobPhase::kGathering) {
    if (!leave.why.empty()) tell_others(node, text);
    try_start(now);
  }
}

void Membership::tell_others(Node node, const std::string& text) {
  for (const auto& [other, peer] : peers_) {
    if (other != node && !peer.leaving) send(other, Note{text});
  }
}

void Membership::lost(Node node, const std::string& why, Clock::time_point now, bool certain) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return;
  const Peer peer = found->second;
  pace_.node_changes(now);
  count(peer, -1);
  if (rules_.fixed_ranks) fixed_.erase(peer.hello.node_rank);
  peers_.erase(found);
  if (over()) return;
  // The first agent of a node that has returned may be counted already.
  history_.dead += certain && peer.elector && !peer.leaving && !peer.hello.returned ? 1 : 0;
  if (phase_ == JobPhase::kProposed && members_.count(node) > 0) return withdraw(now);
  if (is_running(node)) {
    members_.at(node).gone = true;
    --running_;
    if (!peer.leaving) {
      departures_.push_back(fmt::format("{} was lost: {}", name_of(peer), why));
      stop_round(departures_.back() + "; the workers here are stopped", /*leaving=*/false, node);
    }
    return try_judge(now);
  }
  if (rules_.fixed_ranks && phase_ != JobPhase::kGathering)
    lost_after_end_ = name_of(peer) + " has finished and gone";
  if (phase_ != JobPhase::kGathering) return;
  last_loss_ = fmt::format("{} was lost: {}", name_of(peer), why);
  if (rules_.fixed_ranks && history_.rounds > 0) return end_without_round(last_loss_);
  end_if_incomplete(now);
  try_start(now);
}

std::vector<ProcessFailure*> Membership::ordered_failures() {
  std::vector<Member*> failing;
  for (auto& [node, member] : members_) {
    if (member.first_failure >= 0) failing.push_back(&member);
  }
  std::sort(failing.begin(), failing.end(),
            [](const Member* a, const Member* b) { return a->first_failure < b->first_failure; });
  std::vector<ProcessFailure*> failures;
  std::ptrdiff_t simultaneous = 0;
  for (Member* member : failing) {
    for (ProcessFailure& failure : member->end.failures) failures.push_back(&failure);
    if (member->failed_at - failing.front()->failed_at < kSimultaneous)
      simultaneous = std::ssize(failures);
  }
  // A worker that was killed takes its peers with it, and their reports may come before its own; so
  // may those of an abort in a peer of a worker that wrote an error file.
  const auto key = [&](const ProcessFailure& failure) {
    const bool wrote = !failure.message.empty();
    const int signal = failure.exit.signal;
    const bool aborted = signal == SIGABRT || signal == SIGTERM;
    const int rank = is_preemption(rules_.restarts, failure.exit) ? 4
                     : signal != 0 && !aborted                    ? 0
                     : wrote                                      ? 1
                     : aborted                                    ? 2
                                                                  : 3;
    // By each node's time since the round began: their clocks may differ.
    return std::tuple(rank, wrote ? failure.lived : Clock::duration::zero());
  };
  std::stable_sort(failures.begin(), failures.begin() + simultaneous,
                   [&](const auto* a, const auto* b) { return key(*a) < key(*b); });
  return failures;
}

// Failures that come later do not change the order of those that are here, so that what is not
// among the first now never will be.
void Membership::drop_late_failures() {
  auto first = ordered_failures();
  first.resize(std::min(first.size(), kMostFailures));
  kept_failures_ = first.size();
  for (auto& [node, member] : members_) {
    std::vector<ProcessFailure> kept;
    for (ProcessFailure& failure : member.end.failures) {
      if (std::find(first.begin(), first.end(), &failure) != first.end())
        kept.push_back(std::move(failure));
    }
    member.end.failures = std::move(kept);
  }
}

Outcome Membership::outcome() const {
  const auto failed = [](const auto& entry) { return entry.second.unsaved; };
  const bool unsaved = std::any_of(members_.begin(), members_.end(), failed);
  return unsaved              ? Outcome::kFailed
         : kept_failures_ > 0 ? Outcome::kPreempted
                              : Outcome::kSucceeded;
}

void Membership::try_judge(Clock::time_point now) {
  if (phase_ != JobPhase::kRunning && phase_ != JobPhase::kStopping) return;
  if (running_ > 0) return;
  Verdict verdict;
  drop_late_failures();
  for (const ProcessFailure* failure : ordered_failures()) verdict.failures.push_back(*failure);
  verdict.outcome = outcome();
  if (!departures_.empty()) return judge_departures(std::move(verdict), now);
  if (!verdict.failures.empty()) {
    history_.tally.add(rules_.restarts, round_end(verdict.failures.front()));
    verdict.verdict = judge_restart(rules_.restarts, history_.tally);
    if (verdict.verdict.restart && !lost_after_end_.empty()) {
      verdict.verdict = {.number = verdict.verdict.number,
                         .gave_up = lost_after_end_ + ", and each --node-rank is needed"};
    }
    if (!verdict.verdict.restart) return end(std::move(verdict));
    verdict.text =
        restart_text(verdict.failures.front(), verdict.verdict, rules_.restarts.max_restarts) +
        quarantine(verdict.failures.front());
    return restart(std::move(verdict), now);
  }
  const bool finished = std::none_of(members_.begin(), members_.end(),
                                     [](const auto& entry) { return entry.second.end.stopped; });
  if (arrivals_.empty() || finished) return end(std::move(verdict));
  verdict.verdict.delay = pace_.round_ends(now);
  verdict.text =
      fmt::format("restarting{} with {}", soon_text(verdict.verdict.delay), joined_text(arrivals_));
  restart(std::move(verdict), now);
}

// A departure explains the failures of the workers that it has left behind.
void Membership::judge_departures(Verdict verdict, Clock::time_point now) {
  std::string text = joined_text(departures_);
  const bool enough = present_ + absent_ >= rules_.min_nodes;
  if (rules_.fixed_ranks || (needs_all_nodes(rules_) && !enough)) {
    const bool saved = std::all_of(members_.begin(), members_.end(),
                                   [](const auto& entry) { return entry.second.end.preempted; });
    verdict.outcome = saved ? Outcome::kPreempted : Outcome::kFailed;
    if (!rules_.fixed_ranks) text += "; " + needs_all_text();
    verdict.failures.insert(verdict.failures.begin(), job_failure(text));
    return end(std::move(verdict));
  }
  verdict.failures.clear();
  verdict.verdict.delay = pace_.round_ends(now);
  verdict.text =
      enough ? fmt::format("restarting without it{}: {}", soon_text(verdict.verdict.delay), text)
             : fmt::format(
                   "waiting {} at most (--rdzv-conf=join_timeout) for another in its place, "
                   "as --nnodes needs {}: {}",
                   seconds_text(rules_.join_timeout), rules_.min_nodes, text);
  restart(std::move(verdict), now);
  waiting_noted_ = !enough;
}

std::optional<Membership::Node> Membership::node_of(const ProcessFailure& failure) const {
  for (const auto& [node, member] : members_) {
    for (const ProcessFailure& own : member.end.failures) {
      if (own.pid == failure.pid && own.rank == failure.rank && own.host == failure.host)
        return node;
    }
  }
  return std::nullopt;
}

// Returns what to add to the message about the restart.
std::string Membership::quarantine(const ProcessFailure& cause) {
  const auto node = node_of(cause);
  if (rules_.quarantine_after == 0 || rules_.fixed_ranks || !node || peers_.count(*node) == 0)
    return "";
  const int rounds = ++first_to_fail_[peers_.at(*node).hello.id];
  if (rounds < rules_.quarantine_after) return "";
  const std::string why = "its workers were the first to fail in " + plural(rounds, "round");
  const std::string& name = members_.at(*node).name;
  if (present_ + absent_ <= rules_.min_nodes)
    return fmt::format("; {} stays, although {}: the job needs all of its nodes", name, why);
  exclude(*node, why);
  return fmt::format("; {} is excluded: {}", name, why);
}

// The others restart without it, and a spare may take its place.
void Membership::exclude(Node node, const std::string& why) {
  Peer& peer = peers_.at(node);
  if (peer.elector && !peer.hello.returned) ++history_.dead;
  count(peer, -1);
  peer.leaving = true;
  members_.at(node).gone = true;
  const std::string cause =
      fmt::format("this node is excluded from the job: {} (--quarantine-after={})", why,
                  rules_.quarantine_after);
  Verdict verdict;  // by members: GCC 12 takes parts of a temporary one for uninitialized
  verdict.over = true;
  verdict.outcome = Outcome::kFailed;
  verdict.failures.push_back(job_failure(cause));
  send(node, verdict, /*then_close=*/true);
}

void Membership::restart(Verdict verdict, Clock::time_point now) {
  verdict.outcome = Outcome::kSucceeded;
  verdict.verdict.restart = true;
  phase_ = JobPhase::kGathering;
  gathering_since_ = now + verdict.verdict.delay;
  reunion_until_ = gathering_since_ + rules_.patience();
  enough_since_.reset();
  waiting_noted_ = false;
  const auto message = std::make_shared<const ControlMessage>(std::move(verdict));
  for (const auto& [node, member] : members_) {
    if (!member.gone) send(node, message);
  }
  members_.clear();
  kept_failures_ = 0;
  running_ = finished_ = 0;
  try_start(now);
}

void Membership::end(Verdict verdict) {
  phase_ = JobPhase::kOver;
  verdict.over = true;
  const auto message = std::make_shared<const ControlMessage>(verdict);
  for (const auto& [node, peer] : peers_) {
    const bool spare = members_.count(node) == 0 && verdict.failures.empty();
    if (spare) {
      send(node, as_told_to_spare(verdict, peer), /*then_close=*/true);
    } else {
      send(node, message, /*then_close=*/true);
    }
  }
}

Verdict Membership::as_told_to_spare(const Verdict& verdict, const Peer& peer) const {
  Verdict own = verdict;
  own.text = "the job has ended; this node was a spare";
  // A job of its own must not end as if it had run.
  if (!rules_.own_id && !peer.ran && verdict.outcome == Outcome::kSucceeded) {
    own.outcome = Outcome::kFailed;
    own.failures = {job_failure(
        "this node never ran: the other nodes of its job, or another job, had all places at "
        "this rendezvous; give each job its own --rdzv-id, and a spare the job's")};
  }
  return own;
}

void Membership::end_without_round(const std::string& why) {
  Verdict verdict;
  verdict.outcome = Outcome::kFailed;
  verdict.failures = {job_failure(why)};
  end(std::move(verdict));
}

}  // namespace ddp::launch
