// The course of a round: its failures, departures and end, and what becomes of the job then.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/membership.h"

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

}  // namespace

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
  for (ProcessFailure& failure : member.end.failures) failure.host = peers_.at(node).hello.host;
  try_judge(now);
}

void Membership::leave(Node node, const Leave& leave, Clock::time_point now) {
  Peer& peer = peers_.at(node);
  if (!peer.leaving && peer.elector && !peer.hello.returned) ++history_.dead;
  count(peer, -1);
  peer.leaving = true;
  const std::string text =
      fmt::format("{} leaves the job ({})", name_of(peer),
                  leave.signal != 0 ? signal_name(leave.signal) : "its ddp-run was killed");
  if (phase_ == JobPhase::Proposed && members_.count(node) > 0) return withdraw(now);
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
  count(peer, -1);
  if (rules_.fixed_ranks) fixed_.erase(peer.hello.node_rank);
  peers_.erase(found);
  if (over()) return;
  // Of a node that has returned, the first agent may be counted already.
  history_.dead += certain && peer.elector && !peer.leaving && !peer.hello.returned ? 1 : 0;
  if (phase_ == JobPhase::Proposed && members_.count(node) > 0) return withdraw(now);
  if (is_running(node)) {
    members_.at(node).gone = true;
    --running_;
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
  if (running_ > 0) return;
  Verdict verdict;
  verdict.failures = ordered_failures();
  verdict.outcome = outcome_of(rules_.restarts, verdict.failures);
  if (!departures_.empty()) {
    const std::string text = joined_text(departures_);
    if (!rules_.fixed_ranks) {
      verdict.failures.clear();
      const bool enough = present_ + absent_ >= rules_.min_nodes;
      verdict.text =
          (enough ? "restarting without it: " : "waiting for another in its place: ") + text;
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
  verdict.text = "restarting with " + joined_text(arrivals_);
  restart(std::move(verdict), now);
}

void Membership::restart(Verdict verdict, Clock::time_point now) {
  verdict.outcome = Outcome::Succeeded;
  verdict.verdict.restart = true;
  phase_ = JobPhase::Gathering;
  gathering_since_ = now + verdict.verdict.delay;
  reunion_until_ = gathering_since_ + rules_.patience();
  enough_since_.reset();
  waiting_noted_ = false;
  for (const auto& [node, member] : members_) {
    if (!member.gone) send(node, verdict);
  }
  members_.clear();
  running_ = finished_ = 0;
  try_start(now);
}

void Membership::end(Verdict verdict) {
  phase_ = JobPhase::Over;
  verdict.over = true;
  for (const auto& [node, peer] : peers_) {
    Verdict own = verdict;
    if (members_.count(node) == 0 && own.failures.empty()) {
      own.text = "the job has ended; this node was a spare";
      // A job of its own must not end as if it had run.
      if (!rules_.own_id && !peer.ran && verdict.outcome == Outcome::Succeeded) {
        own.outcome = Outcome::Failed;
        own.failures = {job_failure(
            "this node never ran: the other nodes of its job, or another job, had all places at "
            "this rendezvous; give each job its own --rdzv-id, and a spare the job's")};
      }
    }
    send(node, own, /*then_close=*/true);
  }
}

void Membership::end_without_round(const std::string& why) {
  Verdict verdict;
  verdict.outcome = Outcome::Failed;
  verdict.failures = {job_failure(why)};
  end(std::move(verdict));
}

}  // namespace ddp::launch
