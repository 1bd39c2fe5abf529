#include "launcher/hang/pace_window.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace ddp::launch {
namespace {

struct RankTimes {
  int rank = 0;
  PaceTimes times{};
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

PaceTimes times_in(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {percentile_95(values), sum / static_cast<double>(values.size())};
}

PhasePace phase_pace(const std::string& phase, std::vector<RankTimes> ranks) {
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const auto& a, const auto& b) { return a.times.p95 < b.times.p95; });
  PhasePace pace{.phase = phase, .slowest_rank = slowest->rank, .slowest = slowest->times};
  ranks.erase(slowest);
  std::vector<double> p95s, means;
  for (const RankTimes& one : ranks) {
    p95s.push_back(one.times.p95);
    means.push_back(one.times.mean);
  }
  pace.others = {median(std::move(p95s)), median(std::move(means))};
  pace.other_ranks = static_cast<int>(ranks.size());
  return pace;
}

}  // namespace

double percentile_95(std::vector<double> values) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(0.95 * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void PaceWindow::add(int rank, long long step, const std::vector<PhaseTime>& times,
                     Clock::time_point now) {
  if (times.empty()) return;
  Rank& known = ranks_.try_emplace(rank, Rank{now, {}}).first->second;
  while (!known.readings.empty() && known.readings.front().at <= now - kLength)
    known.readings.pop_front();
  if (!known.readings.empty() && known.readings.back().step == step) return;
  known.readings.push_back({now, step, times});
}

std::vector<PaceWindow::Reading> PaceWindow::recent(const Rank& rank, Clock::time_point now) {
  std::vector<Reading> readings;
  for (const Reading& reading : rank.readings) {
    if (reading.at > now - kLength) readings.push_back(reading);
  }
  return readings;
}

NodePace PaceWindow::pace(Clock::time_point now) const {
  NodePace node;
  std::map<std::string, std::vector<RankTimes>> phases;
  for (const auto& [rank, known] : ranks_) {
    const auto readings = recent(known, now);
    if (now - known.since < kLength || readings.size() < kFewestReadings) return {};
    const auto steps = static_cast<double>(readings.back().step - readings.front().step);
    const std::chrono::duration<double> span = readings.back().at - readings.front().at;
    if (steps > 0) node.step_seconds = std::max(node.step_seconds, span.count() / steps);
    std::map<std::string, std::vector<double>> times;
    for (const Reading& reading : readings) {
      for (const PhaseTime& time : reading.times) times[time.phase].push_back(time.seconds);
    }
    for (const auto& [phase, values] : times) phases[phase].push_back({rank, times_in(values)});
  }
  for (auto& [phase, times] : phases) {
    if (node.phases.size() < kMostPhases)
      node.phases.push_back(phase_pace(phase, std::move(times)));
  }
  return node;
}

}  // namespace ddp::launch
