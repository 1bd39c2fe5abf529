#include "launcher/agent/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/agent/failure_order.h"
#include "launcher/agent/worker_reports.h"
#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/process/worker_spec.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// The number of ranks on several nodes is known once a round begins; an elastic job may still grow.
void check_stdin_rank(const JobPlan& plan, int world_size, ProcessRunner& processes) {
  if (world_size == 0 || plan.stdin_rank < world_size) return;
  const std::string what =
      fmt::format("--stdin-rank={}: the job has ranks 0 to {}", plan.stdin_rank, world_size - 1);
  if (!plan.elastic) usage_error(what);
  processes.note(what);
}

}  // namespace

LocalElasticAgent::LocalElasticAgent(JobPlan plan, Rendezvous& rendezvous, ProcessRunner& processes)
    : plan_(std::move(plan)),
      rendezvous_(rendezvous),
      processes_(processes),
      hangs_(plan_.hangs),
      exits_(plan_.exit_grace) {}

RunResult LocalElasticAgent::run() {
  job_began_ = processes_.now();
  if (plan_.preflight) {
    rendezvous_.connect();
    begin_check();
  } else {
    rendezvous_.join();
  }
  for (;;) {
    if (!rendezvous_.has_news()) absorb(processes_.wait(next_wakeup()));
    if (stacks_due_ && processes_.now() >= *stacks_due_) end_stacks();
    if (status_due_ && processes_.now() >= *status_due_) end_status();
    look_for_hangs();
    look_at_pace();
    watch_check();
    keep_standby();
    report_failure();
    report_end();
    absorb_news();
    switch (decide(situation())) {
      case Action::kWait:
        break;
      case Action::kStart:
        start_round();
        break;
      case Action::kLeave:
        leave();
        break;
      case Action::kDumpStacks:
        dump_stacks();
        break;
      case Action::kStop:
        stop_workers();
        break;
      case Action::kKill:
        kill_workers();
        break;
      case Action::kDelay:
        delay_restart();
        break;
      case Action::kRestart:
        restart();
        break;
      case Action::kFinish:
        return finish(Outcome::kSucceeded);
      case Action::kFail:
        return finish(verdict_->outcome);
      case Action::kAbandon:
        return finish(end_signal_ ? Outcome::kInterrupted : Outcome::kFailed);
      case Action::kInterrupt:
        return finish(guardian_gone_ ? Outcome::kGuardianGone
                                     : how_interrupted(plan_.restarts, group_.workers));
    }
  }
}

// A failed first start is the user's to fix; a failed restart may succeed on the next try.
void LocalElasticAgent::join() {
  end_status();  // nodes have other numbers in the next round
  phase_ = Phase::kJoining;
  deadline_.reset();
  failures_.clear();
  verdict_.reset();
  asked_to_stop_.reset();
  failure_reported_ = end_reported_ = false;
  dumping_ = false;
  asked_for_stacks_.clear();
  group_.workers.clear();
  forget_pace();
  if (std::exchange(check_due_, false)) return begin_check();
  try {
    rendezvous_.join();
  } catch (const LaunchError& error) {
    absorb_failed_start(error);
  }
}

void LocalElasticAgent::start_round() {
  if (next_round_ && !prepare_round()) return;
  prepared_ = false;
  try {
    start_workers();
    ever_started_ = true;
  } catch (const LaunchError& error) {
    if (ever_started_) return absorb_failed_start(error);
    // The other nodes must get the cause before this one leaves.
    failures_ = {failure_without_worker({error.exit_code(), 0}, error.what(), processes_)};
    report_failure();
    report_end();
    throw;
  }
}

// The disk of the log folder may not answer at once. Returns whether it has.
bool LocalElasticAgent::prepare_round() {
  group_.rendezvous = *std::exchange(next_round_, std::nullopt);
  group_.restart_count = group_.rendezvous.restart_count;
  if (plan_.folder.path().empty()) return true;
  std::vector<Worker> workers;
  const auto create = [folder = plan_.folder, attempt = group_.restart_count,
                       size = plan_.job.local_world_size] {
    folder.prepare_attempt(attempt, size);
  };
  return processes_.prepare(create, plan_workers(workers));
}

std::vector<WorkerSpec> LocalElasticAgent::plan_workers(std::vector<Worker>& workers) const {
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < plan_.job.local_world_size; ++local_rank) {
    workers.push_back(plan_worker(plan_, group_, local_rank));
    specs.push_back(worker_spec(plan_, group_, workers.back()));
  }
  return specs;
}

void LocalElasticAgent::start_workers() {
  group_.began = processes_.now();
  phase_ = Phase::kRunning;
  hangs_.begin_round(group_.began);
  exits_.begin_round();
  standby_due_.reset();
  standby_kept_ = false;
  processes_.serve_store(group_.rendezvous.store_socket);
  check_stdin_rank(plan_, group_.rendezvous.world_size, processes_);
  plan_.events.group("RENDEZVOUS", group_, since_start());
  const auto pids = processes_.start(plan_workers(group_.workers));
  for (std::size_t i = 0; i < pids.size(); ++i) group_.workers[i].pid = pids[i];
  plan_.events.group("START", group_, since_start());
}

const Worker& LocalElasticAgent::worker_of(const ProcessFailure& failure) const {
  return group_.workers.at(static_cast<std::size_t>(failure.local_rank));
}

int LocalElasticAgent::running() const {
  return static_cast<int>(
      std::count_if(group_.workers.begin(), group_.workers.end(),
                    [](const Worker& w) { return w.state == WorkerState::kRunning; }));
}

Situation LocalElasticAgent::situation() const {
  const bool failed_elsewhere = verdict_ && verdict_->outcome != Outcome::kSucceeded;
  return {.phase = phase_,
          .running = running(),
          .failed = !failures_.empty() || asked_to_stop_ || failed_elsewhere,
          .preempted = all_preempted(),
          .dumping = dumping_,
          .interrupted = end_signal_ != 0,
          .hurry = stop_requests_.count() > 1,
          .suspended = suspended_,
          .deadline_over = !suspended_ && deadline_ && processes_.turn_began() >= *deadline_,
          .guardian_gone = guardian_gone_,
          .round_ready = next_round_ || prepared_,
          .over = verdict_ && verdict_->kind == JobNews::Kind::kEnd,
          .may_restart = verdict_ && verdict_->kind == JobNews::Kind::kRestart,
          .delay = verdict_ && verdict_->verdict.delay.count() > 0,
          .lingering = processes_.lingering()};
}

// Here and, as far as is known, on the other nodes.
bool LocalElasticAgent::all_preempted() const {
  if (asked_to_stop_ && !asked_to_stop_->leaving) return false;
  return failures_.empty() ? asked_to_stop_.has_value()
                           : outcome_of(plan_.restarts, failures_) == Outcome::kPreempted;
}

std::optional<Clock::time_point> LocalElasticAgent::next_wakeup() const {
  const auto asked = earlier(stacks_due_, status_due_);
  if (suspended_) return asked;
  auto next = earlier(deadline_, asked);
  if (phase_ != Phase::kRunning || stacks_due_) return next;
  for (const auto& look : {hangs_.next_look(), exits_.next_look(), pace_.next_look(), standby_due_})
    next = earlier(next, look);
  return next;
}

void LocalElasticAgent::report_failure() {
  if (failure_reported_ || failures_.empty() || phase_ == Phase::kJoining) return;
  failure_reported_ = true;
  rendezvous_.report_failure(failures_.front());
}

void LocalElasticAgent::report_end() {
  const bool started = !group_.workers.empty() || !failures_.empty();
  if (end_reported_ || !started || running() > 0) return;
  end_reported_ = true;
  NodeEnd end;
  if (!failures_.empty() || (asked_to_stop_ && !asked_to_stop_->leaving)) {
    ProcessFailure seen;
    seen.exit = {kExitFailed, 0};
    seen.time = asked_at_;
    if (!failures_.empty()) seen = failures_.front();
    const auto earlier = earlier_failures(group_.workers, seen, processes_);
    failures_.insert(failures_.begin(), earlier.begin(), earlier.end());
    end.failures = with_output(failures_, processes_);
  }
  end.stopped = std::any_of(group_.workers.begin(), group_.workers.end(), [](const Worker& w) {
    return w.state == WorkerState::kStopped || w.stopped_well;
  });
  end.preempted = how_interrupted(plan_.restarts, group_.workers) == Outcome::kPreempted;
  phase_ = Phase::kReported;
  deadline_.reset();
  end_stacks();
  rendezvous_.report_end(std::move(end));
}

void LocalElasticAgent::delay_restart() {
  processes_.note(verdict_->text);
  processes_.sweep(/*at_end=*/false);
  phase_ = Phase::kDelaying;
  deadline_ = processes_.now() + verdict_->verdict.delay;
}

void LocalElasticAgent::restart() {
  if (phase_ != Phase::kDelaying) {
    processes_.note(verdict_->text);
    processes_.sweep(/*at_end=*/false);
  }
  if (!verdict_->failures.empty()) {
    group_.last_failure = failure_json(verdict_->failures.front(), group_.restart_count);
    earlier_.push_back({group_.restart_count, verdict_->failures.front()});
    if (earlier_.size() > RunResult::kMaxEarlier) earlier_.erase(earlier_.begin());
    ++restarts_;
  }
  check_due_ =
      plan_.preflight && std::any_of(failures_.begin(), failures_.end(), [&](const auto& f) {
        return f.is_worker() && !is_preemption(plan_.restarts, f.exit);
      });
  join();
}

void LocalElasticAgent::absorb_failed_start(const LaunchError& error) {
  phase_ = Phase::kRunning;
  group_.workers.clear();
  const std::string what = std::string("cannot restart the workers: ") + error.what();
  failures_ = {failure_without_worker({error.exit_code(), 0}, what, processes_)};
  absorb(processes_.wait(processes_.now()));  // a signal may have come between two quick restarts
  report_failure();
  report_end();
}

Clock::duration LocalElasticAgent::since_start() const { return processes_.now() - job_began_; }

RunResult LocalElasticAgent::finish(Outcome outcome) {
  end_status();
  plan_.events.group(event_name(outcome), group_, since_start());
  RunResult result;
  result.outcome = outcome;
  processes_.stop_store();
  processes_.end_standby();
  result.survivors = processes_.sweep(/*at_end=*/true);
  result.signal = end_signal_;
  for (auto& failure : failures_) {
    if (failure.is_worker()) failure.last_stderr = processes_.last_stderr(failure.local_rank);
  }
  result.failures = what_failed(outcome);
  result.stopped = static_cast<int>(
      std::count_if(group_.workers.begin(), group_.workers.end(), [&](const Worker& w) {
        return w.state == WorkerState::kStopped ||
               (w.state == WorkerState::kRunning && !is_hung(w));
      }));
  result.workers = final_workers(group_, job_began_, processes_);
  result.earlier = std::move(earlier_);
  result.program = plan_.restarts.program;
  result.attempt = group_.restart_count;
  result.lived = since_start();
  const int world_size = group_.rendezvous.world_size;
  result.world_size = world_size > 0 ? world_size : plan_.job.local_world_size;
  result.restarts = restarts_;
  result.max_restarts = plan_.job.max_restarts;
  if (verdict_) result.gave_up = verdict_->verdict.gave_up;
  return result;
}

}  // namespace ddp::launch
