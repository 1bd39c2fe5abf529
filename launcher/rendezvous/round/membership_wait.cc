// What a job does while no round may begin, or while newcomers have to wait for one: the lines that
// tell the user why, and the ends of such waits. Nodes that have finished while a round runs on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/base/text.h"
#include "launcher/rendezvous/round/membership.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kWaitingNote{3'000};

}  // namespace

// Nodes come and go in quick succession: the current round continues for a while.
void Membership::put_off(Node newcomer, Clock::time_point now) {
  admission_at_ = pace_.admission();
  const auto wait = std::chrono::ceil<std::chrono::seconds>(*admission_at_ - now);
  send(newcomer,
       Note{fmt::format("this node joins in {}: nodes have come and gone in quick succession",
                        seconds_text(wait))});
}

void Membership::admit_waiting(Clock::time_point now) {
  if (phase_ != JobPhase::kRunning || !admission_at_ || now < *admission_at_) return;
  admission_at_.reset();
  for (const auto& [node, peer] : peers_) {
    const bool waits = peer.joined && !peer.leaving && members_.count(node) == 0;
    if (waits && phase_ == JobPhase::kRunning) call_in(node, now);
  }
}

std::string Membership::needs_all_text() const {
  return fmt::format("--nnodes={} needs every node, and --max-restarts=0 allows no restart",
                     rules_.max_nodes);
}

// When a job that needs all nodes ends although no round runs. After the loss of the host the
// others, and spares, need a moment to come.
std::optional<Clock::time_point> Membership::incomplete_at() const {
  const int here = present_ + absent_;
  if (!needs_all_nodes(rules_) || history_.rounds == 0 || here >= rules_.min_nodes)
    return std::nullopt;
  if (history_.expected == 0) return pace_.last_change();
  const auto quiet = pace_.last_change() + rules_.quiet;
  return here >= history_.expected ? std::min(quiet, reunion_until_) : reunion_until_;
}

void Membership::end_if_incomplete(Clock::time_point now) {
  const auto at = phase_ == JobPhase::kGathering ? incomplete_at() : std::nullopt;
  if (!at || now < *at) return;
  const std::string lost = last_loss_.empty() ? "the host of the rendezvous was lost" : last_loss_;
  end_without_round(lost + "; " + needs_all_text());
}

std::string Membership::missing_nodes() const {
  constexpr std::size_t kMostMissing = 10;
  std::vector<int> missing;
  for (int rank = 0; rank < rules_.max_nodes && missing.size() < kMostMissing; ++rank) {
    if (fixed_.count(rank) == 0) missing.push_back(rank);
  }
  const auto more = static_cast<std::size_t>(rules_.max_nodes) - fixed_.size() - missing.size();
  return fmt::format("; missing: --node-rank={}{}", fmt::join(missing, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

void Membership::give_up_joining() {
  const int count = present_;
  if (!awaiting_.empty()) {
    return end_without_round(
        fmt::format("the next round could not be entered in etcd within {} "
                    "(--rdzv-conf=join_timeout)",
                    seconds_text(rules_.join_timeout)));
  }
  end_without_round(fmt::format("{} of at least {} joined within {} (--rdzv-conf={}){}{}",
                                plural(count, "node"), rules_.min_nodes,
                                seconds_text(rules_.join_timeout),
                                rules_.fixed_ranks ? "timeout" : "join_timeout",
                                rules_.fixed_ranks ? missing_nodes() : "", rules_.reach_note));
}

// Tells the user why nothing happens.
void Membership::note_waiting(Clock::time_point now) {
  if (waiting_noted_ || now < gathering_since_ + kWaitingNote) return;
  waiting_noted_ = true;
  const int count = present_;
  const std::string text = fmt::format(
      "waiting for nodes: {} of at least {} here, for {} at most{}{}", count, rules_.min_nodes,
      seconds_text(rules_.join_timeout), rules_.fixed_ranks ? missing_nodes() : "",
      count < rules_.min_nodes ? rules_.reach_note : "");
  for (const Node node : ready()) send(node, Note{text});
}

std::optional<std::pair<std::string, Membership::Node>> Membership::partly_done() const {
  if (phase_ != JobPhase::kRunning || finished_ == 0) return std::nullopt;
  std::map<int, Node> running;  // by rank
  std::vector<int> done;
  for (const auto& [node, member] : members_) {
    if (is_running(node)) running[member.rank] = node;
    if (member.ended) done.push_back(member.rank);
  }
  if (running.empty() || done.empty()) return std::nullopt;
  std::sort(done.begin(), done.end());
  return std::pair{numbered("node", done), running.begin()->second};
}

std::optional<Clock::time_point> Membership::deadline() const {
  if (phase_ == JobPhase::kRunning) return admission_at_;
  if (phase_ != JobPhase::kGathering) return std::nullopt;
  NextTime next(ticked_);
  next.consider(incomplete_at());
  next.consider(reunion_until_);
  next.consider(last_call_ends());
  next.consider(gathering_since_ + kWaitingNote);
  next.consider(gathering_since_ + rules_.join_timeout);
  return next.time();
}

}  // namespace ddp::launch
