#include "launcher/agent/hang_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/worker_reports.h"
#include "launcher/base/states.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Waking this late means that we were suspended, and so were the workers.
constexpr auto kOverslept = std::chrono::seconds(1);

// How often the workers' states are read for HangRules::uninterruptible.
constexpr auto kStates = std::chrono::seconds(1);

double to_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

CpuTimes times_of(const std::vector<const Worker*>& workers, const ProcessRunner& processes) {
  CpuTimes times;
  for (const Worker* worker : workers) times.merge(processes.cpu_times_of(worker->local_rank));
  return times;
}

std::vector<Suspect> suspects_among(const std::vector<const Worker*>& alive,
                                    const std::vector<LifeSign>& signs, const HangVerdict& verdict,
                                    const ProcessRunner& processes) {
  std::vector<Suspect> suspects;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    suspects.push_back({signs[i], false, processes.state_of(alive[i]->local_rank).letter});
  }
  for (const std::size_t i : verdict.overdue) suspects[i].overdue = true;
  return suspects;
}

}  // namespace

void HangMonitor::begin_round(Clock::time_point now) {
  silent_since_ = now;
  times_at_half_.clear();
  starvation_noted_ = false;
  look_at_.reset();
  const auto silence =
      rules_.timeout || !rules_.heed_promises ? rules_.timeout : rules_.first_heartbeat;
  if (silence) look_at_ = now + *silence / 2;
  uninterruptible_.clear();
  if (rules_.uninterruptible) look_at_states_ = now;
}

void HangMonitor::forgive_silence(Clock::time_point now) {
  silent_since_ = now;
  uninterruptible_.clear();
}

std::optional<Clock::time_point> HangMonitor::next_look() const {
  return earlier(look_at_, look_at_states_);
}

std::vector<ProcessFailure> HangMonitor::look_at_states(const std::vector<Worker>& workers,
                                                        ProcessRunner& processes) {
  const auto now = processes.turn_began();
  std::vector<ProcessFailure> failures;
  if (!look_at_states_ || now < *look_at_states_) return failures;
  if (now - *look_at_states_ > kOverslept) uninterruptible_.clear();
  const auto limit = *rules_.uninterruptible;
  look_at_states_ = now + std::min<Clock::duration>(kStates, limit / 2);
  for (const Worker& worker : workers) {
    if (worker.state != WorkerState::kRunning) continue;
    const KernelState state = processes.state_of(worker.local_rank);
    if (state.letter != 'D') {
      uninterruptible_.erase(worker.pid);
      continue;
    }
    Sleep& sleep =
        uninterruptible_.try_emplace(worker.pid, Sleep{state.switches, now}).first->second;
    if (sleep.switches != state.switches) sleep = {state.switches, now};
    const auto asleep = now - sleep.since;
    if (asleep < limit) continue;
    failures.push_back(failure_of(worker, processes));
    failures.back().exit = {kExitHang, 0};
    failures.back().hang = fmt::format("for {:.1f} s in {}", to_seconds(asleep), state.text);
  }
  return failures;
}

std::vector<ProcessFailure> HangMonitor::look(const std::vector<Worker>& workers,
                                              ProcessRunner& processes) {
  const auto now = processes.turn_began();
  if (auto failures = look_at_states(workers, processes); !failures.empty()) return failures;
  if (!look_at_ || now < *look_at_) return {};
  if (now - *look_at_ > kOverslept) silent_since_ = now;
  std::vector<const Worker*> alive;
  std::vector<LifeSign> signs;
  for (const Worker& worker : workers) {
    if (worker.state != WorkerState::kRunning) continue;
    alive.push_back(&worker);
    signs.push_back(processes.life_sign(worker.local_rank));
  }
  HangVerdict verdict = judge_hangs(rules_, signs, silent_since_, now);
  if (verdict.doubtful) {
    // For all of them: workers that are not held up wait for one that is.
    silent_since_ = std::max(silent_since_, processes.held_up_until());
    verdict = judge_hangs(rules_, signs, silent_since_, now);
  }
  look_at_ = verdict.look_again;
  if (!verdict.doubtful) {
    times_at_half_.clear();
  } else if (times_at_half_.empty()) {
    times_at_half_ = times_of(alive, processes);
    half_ = now;
  }
  if (verdict.overdue.empty()) return {};

  const auto suspects = suspects_among(alive, signs, verdict, processes);
  const bool held = std::any_of(suspects.begin(), suspects.end(), is_held);
  if (!held && only_starved(alive, signs, processes)) return {};
  std::vector<ProcessFailure> failures;
  for (const std::size_t i : find_hung(suspects)) {
    failures.push_back(describe(*alive[i], suspects[i], processes));
  }
  return failures;
}

// Time in which a worker was kept from running does not count, for all of them: the others wait for
// that one.
bool HangMonitor::only_starved(const std::vector<const Worker*>& alive,
                               const std::vector<LifeSign>& signs, ProcessRunner& processes) {
  const auto now = processes.now();
  const auto starved = starved_between(times_at_half_, times_of(alive, processes), now - half_);
  const HangVerdict verdict = judge_hangs(rules_, signs, silent_since_, now - starved);
  if (!verdict.overdue.empty()) return false;
  if (verdict.look_again) look_at_ = *verdict.look_again + starved;
  constexpr auto kNotable = std::chrono::milliseconds(100);  // what one digit can say
  if (starved >= kNotable && !std::exchange(starvation_noted_, true)) {
    processes.note(
        fmt::format("no sign of life in time, but workers had to wait {:.1f} s for a CPU: this "
                    "machine has too few of them for all that runs; waiting longer",
                    to_seconds(starved)));
  }
  return true;
}

ProcessFailure HangMonitor::describe(const Worker& worker, const Suspect& suspect,
                                     ProcessRunner& processes) const {
  const auto silent = processes.now() - std::max(suspect.sign.at, silent_since_);
  const std::string state = processes.state_of(worker.local_rank).text;
  const std::string& waiting = suspect.sign.progress.waiting;
  ProcessFailure failure = failure_of(worker, processes);
  failure.exit = {kExitHang, 0};
  failure.hang = fmt::format("silent for {:.1f} s", to_seconds(silent));
  if (!state.empty()) failure.hang += ", " + state;
  if (!suspect.overdue) {
    failure.hang += "; others are waiting for it";
  } else if (!waiting.empty()) {
    failure.hang += "; waiting for its peers in " + waiting;
  }
  return failure;
}

}  // namespace ddp::launch
