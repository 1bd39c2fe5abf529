// How the agent stops its workers: hangs, stacks, grace, SIGKILL; what had failed by then.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "launcher/agent/agent.h"
#include "launcher/agent/worker_reports.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/round/straggler_watch.h"

namespace ddp::launch {
namespace {

// A worker in uninterruptible sleep may survive SIGKILL: wait no longer than this.
constexpr auto kKillPatience = std::chrono::seconds(5);
// Hung workers will not save anything, so they get less time to stop.
constexpr std::chrono::milliseconds kHangGrace{5'000};
constexpr auto kStackPatience = std::chrono::seconds(10);

}  // namespace

// A hung worker has failed: the others may wait for it in a collective forever.
void LocalElasticAgent::look_for_hangs() {
  if (phase_ != Phase::kRunning || suspended_ || stacks_due_ || !failures_.empty()) return;
  failures_ = hangs_.look(group_.workers, processes_);
  if (const auto others = rendezvous_.partly_done())
    exits_.exited_elsewhere(*others, processes_.now());
  if (failures_.empty()) failures_ = exits_.look(group_.workers, processes_);
  for (ProcessFailure& failure : failures_) {
    failure.lived = processes_.now() - group_.began;
    failure.stacks = plan_.folder.stacks_file(group_.restart_count, failure.local_rank);
    dumping_ = dumping_ || !failure.stacks.empty();
    plan_.events.worker("HUNG", group_, worker_of(failure), since_start(), hang_text(failure));
  }
}

// All nodes know the straggler; the first one tells the user.
void LocalElasticAgent::look_at_pace() {
  if (phase_ != Phase::kRunning || suspended_) return;
  auto pace = pace_.look(group_.workers, processes_);
  if (!pace) return;
  pace->node = group_.rendezvous.group_rank;
  pace->host = plan_.host;
  rendezvous_.report_pace(*pace, processes_.now());
  const auto straggler = rendezvous_.straggler();
  if (!straggler || !pace_.should_name(*straggler, processes_.now())) return;
  plan_.events.straggler(group_, *straggler, since_start());
  if (group_.rendezvous.group_rank == 0) processes_.note(straggler_text(*straggler));
}

void LocalElasticAgent::forget_pace() {
  pace_.begin_round();
  rendezvous_.report_pace({}, processes_.now());
}

bool LocalElasticAgent::is_hung(const Worker& worker) const {
  return std::any_of(failures_.begin(), failures_.end(), [&](const ProcessFailure& failure) {
    return failure.pid == worker.pid && !failure.hang.empty();
  });
}

std::chrono::milliseconds LocalElasticAgent::grace() const {
  const bool hang = !failures_.empty() && !failures_.front().hang.empty();
  return hang ? std::min(plan_.grace, kHangGrace) : plan_.grace;
}

void LocalElasticAgent::leave() {
  phase_ = Phase::kLeaving;
  deadline_ = processes_.now() + plan_.grace;
}

// A stopped worker's state is its whole story, and the others only wait for it: no debugger has to
// hold up the restart.
bool LocalElasticAgent::cause_is_stopped() const {
  const char state = processes_.state_of(failures_.front().local_rank).letter;
  return state == 'T' || state == 't';
}

// Dump all workers: a hung one may be waiting for another.
void LocalElasticAgent::dump_stacks() {
  for (const ProcessFailure& failure : failures_) {
    processes_.note(fmt::format("rank {} (local rank {}, pid {}) hung: {}; stacks: {}",
                                failure.rank, failure.local_rank, failure.pid, hang_text(failure),
                                failure.stacks));
  }
  std::vector<int> ranks;  // the cause first: there may not be time for all
  for (const ProcessFailure& failure : failures_) ranks.push_back(failure.local_rank);
  for (const Worker& worker : group_.workers) {
    if (worker.state == WorkerState::kRunning && !is_hung(worker))
      ranks.push_back(worker.local_rank);
  }
  const bool by_debugger = !cause_is_stopped();
  std::vector<StackDump> wanted;
  for (const int rank : ranks)
    wanted.push_back({rank, plan_.folder.stacks_file(group_.restart_count, rank), by_debugger});
  if (!processes_.dump_stacks(wanted)) ask_for_stacks(by_debugger ? ranks : std::vector<int>{});
  phase_ = Phase::kDumping;
  deadline_ = processes_.now() + (dumping_ ? kStackPatience : std::chrono::seconds{0});
}

// Without a debugger, or if it may not attach, ask the hung program itself: Python's faulthandler
// answers SIGABRT.
void LocalElasticAgent::ask_for_stacks(const std::vector<int>& local_ranks) {
  for (const ProcessFailure& failure : failures_) {
    const int rank = failure.local_rank;
    const bool wanted =
        std::find(local_ranks.begin(), local_ranks.end(), rank) != local_ranks.end();
    if (!wanted || worker_of(failure).state != WorkerState::kRunning) continue;
    processes_.signal_worker(rank, SIGABRT);
    processes_.signal_worker(rank, SIGCONT);
    asked_for_stacks_.insert(rank);
  }
  dumping_ = !asked_for_stacks_.empty();
}

void LocalElasticAgent::stop_workers() {
  end_stacks();
  const int signal = end_signal_ != 0 ? end_signal_ : SIGTERM;
  // The order of exits does not matter when a signal ends the job.
  for (Worker& worker : group_.workers)
    worker.was_dying = end_signal_ == 0 && processes_.state_of(worker.local_rank).dying;
  // The hung worker cannot save anything; killing it frees its peers, so that they can.
  if (!failures_.empty() && !failures_.front().hang.empty())
    processes_.signal_worker(failures_.front().local_rank, SIGKILL);
  processes_.stop_workers(signal, grace());
  processes_.signal_workers(SIGCONT);  // a worker that is suspended could not react
  phase_ = Phase::kStopping;
  deadline_ = processes_.now() + grace();
  if (end_signal_ != 0) {
    processes_.note(fmt::format("{}: forwarded to {}; grace period {}, repeat to kill at once",
                                signal_name(signal), plural(running(), "worker"),
                                seconds_text(grace())));
  }
}

void LocalElasticAgent::kill_workers() {
  processes_.signal_workers(SIGKILL);
  if (phase_ == Phase::kStopping && stop_requests_.count() < 2 && !guardian_gone_) {
    processes_.note(fmt::format("{} did not stop within {}; killed", plural(running(), "worker"),
                                seconds_text(grace())));
  }
  phase_ = Phase::kKilling;
  deadline_ = processes_.now() + kKillPatience;
}

// An interruption does not hide what failed before it, neither while the others were stopped nor
// before a restart. Nodes that left and workers that saved have not failed.
std::vector<ProcessFailure> LocalElasticAgent::what_failed(Outcome outcome) {
  auto failures = verdict_ ? with_details(verdict_->failures, failures_) : failures_;
  if (outcome != Outcome::kInterrupted) return failures;
  if (!failures.empty() && !failures.front().is_worker()) failures = failures_;
  const bool failed_before = !earlier_.empty() && earlier_.back().attempt == group_.restart_count;
  if (phase_ == Phase::kJoining && failed_before) {
    failures = {earlier_.back().cause};
    earlier_.pop_back();
  }
  if (outcome_of(plan_.restarts, failures) == Outcome::kPreempted) failures.clear();
  return failures;
}

}  // namespace ddp::launch
