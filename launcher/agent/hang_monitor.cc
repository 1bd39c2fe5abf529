#include "launcher/agent/hang_monitor.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/agent/worker_reports.h"
#include "launcher/base/states.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Waking this late means that we were suspended, and so were the workers.
constexpr auto kOverslept = std::chrono::seconds(1);

}  // namespace

void HangMonitor::begin_round(Clock::time_point now) {
  silent_since_ = now;
  look_at_.reset();
  if (rules_.timeout) look_at_ = now + *rules_.timeout;
}

std::vector<ProcessFailure> HangMonitor::look(const std::vector<Worker>& workers,
                                              ProcessRunner& processes) {
  const auto now = processes.now();
  if (!look_at_ || now < *look_at_) return {};
  if (now - *look_at_ > kOverslept) silent_since_ = now;
  // For all of them: workers that are not held up wait for one that is.
  silent_since_ = std::max(silent_since_, processes.held_up_until());
  std::vector<const Worker*> alive;
  std::vector<LifeSign> signs;
  for (const Worker& worker : workers) {
    if (worker.state != WorkerState::Running) continue;
    alive.push_back(&worker);
    signs.push_back(processes.life_sign(worker.local_rank));
  }
  const HangVerdict verdict = judge_hangs(rules_, signs, silent_since_, now);
  look_at_ = verdict.look_again;
  if (verdict.overdue.empty()) return {};

  std::vector<Suspect> suspects;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    suspects.push_back({signs[i], false, processes.state_of(alive[i]->local_rank).letter});
  }
  for (const std::size_t i : verdict.overdue) suspects[i].overdue = true;
  std::vector<ProcessFailure> failures;
  for (const std::size_t i : find_hung(suspects)) {
    failures.push_back(describe(*alive[i], suspects[i], processes));
  }
  return failures;
}

ProcessFailure HangMonitor::describe(const Worker& worker, const Suspect& suspect,
                                     ProcessRunner& processes) const {
  const auto silent = processes.now() - std::max(suspect.sign.at, silent_since_);
  const std::string state = processes.state_of(worker.local_rank).text;
  const std::string& waiting = suspect.sign.progress.waiting;
  ProcessFailure failure = failure_of(worker, processes);
  failure.exit = {kExitHang, 0};
  failure.hang = fmt::format("silent for {:.1f} s", std::chrono::duration<double>(silent).count());
  if (!state.empty()) failure.hang += ", " + state;
  if (!suspect.overdue) {
    failure.hang += "; others are waiting for it";
  } else if (!waiting.empty()) {
    failure.hang += "; waiting for its peers in " + waiting;
  }
  return failure;
}

}  // namespace ddp::launch
