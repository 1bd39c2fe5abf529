#include "launcher/rendezvous/round/succession.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/rendezvous/round/epochs.h"

namespace ddp::launch {
namespace {

using Found = Inquiry::Found;

}  // namespace

bool took_part(const Round& last, const Hello& hello) {
  if (hello.epoch == last.info.epoch) return true;
  return may_precede(hello.epoch, last.info.epoch) &&
         std::any_of(last.successors.begin(), last.successors.end(),
                     [&](const Successor& one) { return one.member == hello.member; });
}

Succession::Succession(const LastRound& last, const std::string& own_id,
                       const std::optional<Place>& lost, Clock::time_point fresh_until)
    : epoch_(last.round.info.epoch),
      nodes_(last.round.info.group_world_size),
      took_part_(last.took_part),
      hosted_(last.host_id == own_id),
      begun_(last.begun),
      host_id_(last.host_id),
      fresh_until_(fresh_until),
      own_place_(hosted_ ? 0 : SIZE_MAX) {
  const auto& successors = last.round.successors;  // not the host; all others, if they are few
  host_may_count_ = successors.size() < kMaxSuccessors && std::ssize(successors) < nodes_;
  if (!hosted_) add(last.host);
  for (const Successor& one : successors) {
    if (one.node == last.node && took_part_ && !hosted_) {
      own_place_ = places_.size();
    } else if (one.port > 0) {
      add({one.address, one.port});
    }
  }
  electors_ = places_.size();
  if (lost) add(*lost);
}

void Succession::add(const Place& place) {
  if (std::find(places_.begin(), places_.end(), place) == places_.end()) places_.push_back(place);
}

bool Succession::is_dead(std::size_t i, const Inquiry::Finding& finding) const {
  return finding.gone || (i == 0 && !hosted_ && replaced_);
}

// Another agent at the last host's place means that the host has exited.
void Succession::note_replaced(const std::vector<Inquiry::Finding>& findings,
                               Clock::time_point now) {
  if (hosted_ || replaced_ || findings.empty()) return;
  const Inquiry::Finding& host = findings.front();
  if (host.found == Found::kAnswer && host.status.epoch < epoch_ && host.status.id != host_id_)
    replaced_ = now;
}

void Succession::count(const std::vector<Inquiry::Finding>& findings,
                       const std::vector<Hello>& followers) {
  mandate_ = {.nodes = nodes_, .hosted = hosted_, .begun = begun_};
  missing_.clear();
  for (std::size_t i = 0; i < std::min(electors_, findings.size()); ++i) {
    const Inquiry::Finding& one = findings[i];
    const bool dead = is_dead(i, one);
    const bool host = i == 0 && !hosted_;
    const bool counts = host ? host_may_count_ : begun_;
    mandate_.dead +=
        dead && counts && one.gone.value_or(replaced_.value_or(fresh_until_)) <= fresh_until_;
    if (!dead && one.found == Found::kAnswer) continue;
    std::string state = dead ? "is gone" : "is silent";
    if (host && host_forgot()) {
      state =
          "was started again and has forgotten the job (without a --log-dir that it could read)";
      if (nodes_ == 2) state += ": start all nodes again";
    }
    missing_ += fmt::format("{}{}:{} {}", missing_.empty() ? "" : ", ", one.place.address,
                            one.place.port, state);
  }
  mandate_.followers = static_cast<int>(followers.size()) + (took_part_ ? 1 : 0);
  for (const Hello& one : followers) mandate_.returned += one.returned ? 1 : 0;
}

// The newest of those that others follow, this round's or a later one's. At an endpoint there may
// be a job of nodes that know nothing of this one, unless it has a later round.
std::optional<Succession::Step> Succession::follow_host(
    const std::vector<Inquiry::Finding>& findings, const Authority::View& view) const {
  const Inquiry::Finding* best = nullptr;
  const auto consider = [&](const Inquiry::Finding& one, long long least) {
    if (one.found != Found::kAnswer || !one.status.has_host() || one.status.epoch < least) return;
    const bool better =
        !best || one.status.epoch > best->status.epoch ||
        (one.status.epoch == best->status.epoch && one.status.hosts && !best->status.hosts);
    if (better) best = &one;
  };
  for (const auto& one : findings) consider(one, epoch_);
  for (const auto& one : view.endpoints) consider(one, epoch_ + 1);
  return best ? std::optional(avoided_.connect_to(place_of_host(*best), view.now)) : std::nullopt;
}

// Whether the latest round that a held node has accepted had no other node. Nobody else can host.
bool Succession::holds_later_round(const std::vector<Hello>& later) {
  const auto latest = std::max_element(
      later.begin(), later.end(), [](const Hello& a, const Hello& b) { return a.epoch < b.epoch; });
  if (latest == later.end() || !latest->alone) return false;
  mandate_ = {.nodes = 1, .followers = 1, .returned = latest->returned, .later = latest->epoch};
  return true;
}

Succession::Step Succession::next(const std::vector<Inquiry::Finding>& findings,
                                  const Authority::View& view, bool alone) {
  const auto now = view.now;
  first_ = false;
  note_replaced(findings, now);
  count(findings, view.followers);
  if (const auto step = follow_host(findings, view)) return *step;
  for (const auto& one : findings) {
    if (one.found == Found::kAnswer && one.status.epoch > epoch_)
      return avoided_.connect_to(one.place, now);
  }
  if (view.own.port > 0 && holds_later_round(view.later)) return {Step::Kind::kHost, {}};
  for (std::size_t i = 0; i < std::min(own_place_, findings.size()); ++i) {
    const auto& one = findings[i];
    if (one.found == Found::kNothing) return {};
    const bool ready = one.found == Found::kAnswer && one.status.epoch == epoch_;
    const Step step = avoided_.connect_to(one.place, now);
    if (ready && step.kind == Step::Kind::kConnect) return step;
  }
  if (own_place_ == SIZE_MAX) return {};
  first_ = true;
  return {mandate_.holds() || alone ? Step::Kind::kHost : Step::Kind::kWait, {}};
}

}  // namespace ddp::launch
