#include "launcher/agent/pace_monitor.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::seconds kBetweenReadings{1};
constexpr std::chrono::seconds kWithoutTimes{5};  // heartbeats may get them later
constexpr std::chrono::minutes kBetweenNotes{1};
constexpr std::chrono::minutes kBeforeRepeat{10};

}  // namespace

void PaceMonitor::begin_round() {
  window_.clear();
  look_at_.reset();
}

void PaceMonitor::heartbeat_began(Clock::time_point now) {
  if (!look_at_) look_at_ = now + kBetweenReadings;
}

std::optional<NodePace> PaceMonitor::look(const std::vector<Worker>& workers,
                                          ProcessRunner& processes) {
  const auto now = processes.now();
  if (!look_at_ || now < *look_at_) return std::nullopt;
  bool any = false;
  for (const Worker& worker : workers) {
    if (worker.state != WorkerState::kRunning) continue;
    const LifeSign sign = processes.life_sign(worker.local_rank);
    any = any || !sign.times.empty();
    window_.add(worker.rank, sign.progress.step.value_or(0), sign.times, now);
  }
  look_at_ = now + (any ? kBetweenReadings : kWithoutTimes);
  return window_.pace(now);
}

bool PaceMonitor::should_name(const Straggler& straggler, Clock::time_point now) {
  if (named_) {
    const auto pause = named_->same_as(straggler) ? kBeforeRepeat : kBetweenNotes;
    if (now - named_at_ < pause) return false;
  }
  named_ = straggler;
  named_at_ = now;
  return true;
}

}  // namespace ddp::launch
