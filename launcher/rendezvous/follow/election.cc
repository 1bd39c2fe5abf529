#include "launcher/rendezvous/follow/election.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/base/text.h"

namespace ddp::launch {

void Election::seek(std::optional<Loss> loss, const Status& status) {
  vote_.reset();
  turn_ = {};  // the first questions are due at once
  if (!loss) return;
  Succession succession(loss->last, status.id, loss->host, loss->fresh_until);
  Inquiry inquiry(succession.places(), status, settings_.token, loss->patience);
  vote_.emplace(Vote{std::move(succession), std::move(inquiry), Clock::now(), loss->patience,
                     std::move(loss->text)});
}

Authority::Step Election::next(const View& view) {
  constexpr std::size_t kAskedByFollowers = 8;
  if (!vote_) return {};
  vote_->alone = settings_.rules.allow_minority && turn_ >= alone_at();
  const Step step = vote_->succession.next(vote_->inquiry.findings(), view, vote_->alone);
  vote_->inquiry.limit(vote_->succession.is_first() ? SIZE_MAX : kAskedByFollowers);
  if (step.kind != Step::Kind::kWait) return step;
  const bool due = !vote_->noted || (vote_->succession.host_forgot() && !vote_->forgot_noted);
  if (due && turn_ >= vote_->since + kSilentWait && timeout() > kSilentWait) {
    vote_->noted = true;
    vote_->forgot_noted = vote_->succession.host_forgot();
    note_ = fmt::format(
        "waiting for {} at most: {} (--rdzv-conf=allow_minority=1 goes on without them)",
        seconds_text(settings_.rules.join_timeout), reason());
  }
  return step;
}

void Election::avoid(const Place& place) {
  constexpr std::chrono::milliseconds kAvoided{500};
  if (vote_) vote_->succession.avoid(place, Clock::now() + kAvoided);
}

// A job of a fixed number of nodes without restarts ends with its host, wherever the others are.
std::chrono::milliseconds Election::timeout() const {
  return needs_all_nodes(settings_.rules) ? kSilentWait : settings_.rules.join_timeout;
}

// Waiting is right, two jobs are not.
std::string Election::reason() const {
  const Mandate mandate = vote_->succession.mandate();
  const std::string missing = vote_->succession.missing();
  return fmt::format(
      "{} of the last round's {} nodes are here, {}, and the others may still be at work{}{}",
      mandate.followers, mandate.nodes,
      mandate.begun ? "which is no majority" : "but all are needed as it may not have begun",
      missing.empty() ? "" : ": ", missing);
}

std::string Election::despair() const {
  if (!vote_ || turn_ < vote_->since + timeout()) return "";
  return vote_->text + "; " + reason();
}

void Election::hand_down(JobHistory& history) const {
  if (!vote_) return;
  const Mandate mandate = vote_->succession.mandate();
  history.expected = mandate.nodes - mandate.dead;
  history.nodes = mandate.nodes;
  history.dead = mandate.dead;
  history.hosted = mandate.hosted;
  history.begun = mandate.begun;
  history.alone = vote_->alone;
  if (mandate.later < 0) return;
  history.epoch = mandate.later;
  history.order.clear();  // of a round before that
}

void Election::add_poll_fds(std::vector<pollfd>& fds) const {
  if (vote_) vote_->inquiry.add_poll_fds(fds);
}

void Election::handle(const std::vector<pollfd>& fds) {
  turn_ = Clock::now();
  if (vote_) vote_->inquiry.handle(fds);
}

std::optional<Clock::time_point> Election::deadline() const {
  if (!vote_) return std::nullopt;
  NextTime next(turn_);
  next.consider(vote_->inquiry.deadline());
  next.consider(vote_->since + timeout());
  next.consider(vote_->since + kSilentWait);
  if (settings_.rules.allow_minority) next.consider(alone_at());
  return next.time();
}

}  // namespace ddp::launch
