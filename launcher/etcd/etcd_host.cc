// What the authority does while this agent hosts the job: when a round may begin, and when this
// agent must not host any more.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/etcd/etcd_authority.h"

namespace ddp::launch {

void EtcdAuthority::hand_down(JobHistory& history) const {
  history.epoch = keys_.epoch.epoch;
  history.expected = expected_;
}

void EtcdAuthority::request_epoch(const std::vector<Hello>& nodes) {
  wanted_.reset();
  if (!nodes.empty()) wanted_ = nodes;
  call_next();
}

// No round runs without one of its nodes.
bool EtcdAuthority::last_round_is_over() {
  const EpochKey& last = keys_.epoch;
  if (last.epoch < 0 || last.host_id == status_.id || last.nodes.empty()) return true;
  const auto took_part = [&](const Hello& node) {
    return node.epoch == last.epoch ||
           std::any_of(last.nodes.begin(), last.nodes.end(),
                       [&](const EpochKey::Node& one) { return one.id == node.id; });
  };
  if (std::any_of(wanted_->begin(), wanted_->end(), took_part)) return true;
  ask_last_nodes();
  const auto& findings = inquiry_->findings();
  if (std::any_of(findings.begin(), findings.end(), [](const auto& one) { return !!one.gone; }))
    return true;
  const auto waited = Clock::now() - began_;
  if (!wait_noted_ && waited >= kSilentWait) {
    wait_noted_ = true;
    note_ = fmt::format(
        "waiting for {} at most: none of the last round's {} nodes can be reached, and they may "
        "still be at work (--rdzv-conf=outage_timeout)",
        seconds_text(settings_.outage), last.nodes.size());
  }
  return waited >= settings_.outage;
}

void EtcdAuthority::ask_last_nodes() {
  if (inquiry_) return;
  std::vector<Place> places;
  for (const EpochKey::Node& node : keys_.epoch.nodes) places.push_back(node.place);
  inquiry_.emplace(places, status_, group_.token, group_.rules.patience());
  inquiry_->limit(8);
}

void EtcdAuthority::depose(const std::string& why) {
  deposed_ = why;
  role_ = Role::kIdle;
  client_.end_watch();
}

// Before anything else, so that a round that is over does not run on.
void EtcdAuthority::judge_time() {
  const auto now = boot_time();
  const auto gap = now - std::exchange(last_turn_, now);
  if (role_ != Role::kHosting) return;
  if (now > lease_until_ && gap > settings_.lease / 2) {
    return depose(
        fmt::format("this agent was suspended for {}, longer than its lease in etcd",
                    seconds_text(std::chrono::duration_cast<std::chrono::milliseconds>(gap))));
  }
  if (now > contact_ + settings_.outage) {
    depose(fmt::format("etcd has not answered for {} (--rdzv-conf=outage_timeout): {}",
                       seconds_text(settings_.outage), client_.problem()));
  }
}

void EtcdAuthority::resign() {
  if (role_ != Role::kHosting) return;
  role_ = Role::kLeaving;
  client_.end_watch();
  call_next();
}

void EtcdAuthority::end_job() {
  if (role_ != Role::kHosting || !keys_.host) return;
  over_ = true;
  resign();
}

}  // namespace ddp::launch
