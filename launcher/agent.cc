#include "launcher/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/failure_report.h"
#include "launcher/signal_mailbox.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// A worker in uninterruptible sleep may survive SIGKILL: nobody waits for it longer than this.
constexpr auto kKillPatience = std::chrono::seconds(5);
// `timeout` and some schedulers send one signal twice, to the process and to its group: that is no
// second signal.
constexpr auto kSameSignal = std::chrono::milliseconds(100);

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", time.count() / 1000.0);
}

}  // namespace

LocalElasticAgent::LocalElasticAgent(AgentSpec spec, RendezvousHandler& rendezvous,
                                     ProcessRunner& processes)
    : spec_(std::move(spec)), rendezvous_(rendezvous), processes_(processes) {}

RunResult LocalElasticAgent::run() {
  start_round();
  for (;;) {
    absorb(processes_.wait(deadline_));
    switch (decide(situation())) {
      case Action::Wait:
        break;
      case Action::Stop:
        stop_workers();
        break;
      case Action::Kill:
        kill_workers();
        break;
      case Action::Delay:
        delay_restart();
        break;
      case Action::Restart:
        restart();
        break;
      case Action::Finish:
        return finish(Outcome::Succeeded);
      case Action::Fail:
        return finish(Outcome::Failed);
      case Action::Abandon:
        return finish(end_signal_ ? Outcome::Interrupted : Outcome::Failed);
      case Action::Interrupt:
        return finish(launcher_gone_ ? Outcome::LauncherGone : Outcome::Interrupted);
    }
  }
}

void LocalElasticAgent::start_round() {
  group_.rendezvous = rendezvous_.next_round();
  if (group_.rendezvous.store_socket >= 0) processes_.serve_store(group_.rendezvous.store_socket);
  group_.workers.clear();
  failures_.clear();
  verdict_.reset();
  round_began_ = processes_.now();
  if (group_.restart_count == 0) job_began_ = round_began_;
  phase_ = Phase::Running;
  deadline_.reset();
  spec_.folder.prepare_attempt(group_.restart_count, spec_.job.local_world_size);

  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < spec_.job.local_world_size; ++local_rank) {
    Worker worker;
    worker.local_rank = local_rank;
    worker.rank = group_.rendezvous.group_rank * spec_.job.local_world_size + local_rank;
    worker.error_file = spec_.folder.error_file(group_.restart_count, local_rank);
    specs.push_back(describe_worker(worker));
    group_.workers.push_back(worker);
  }
  const auto pids = processes_.start(specs);
  for (std::size_t i = 0; i < pids.size(); ++i) group_.workers[i].pid = pids[i];
}

WorkerSpec LocalElasticAgent::describe_worker(const Worker& worker) const {
  WorkerSpec spec;
  spec.local_rank = worker.local_rank;
  spec.command = worker_command(spec_.command, worker.local_rank);
  spec.environment = worker_environment(spec_.inherited, spec_.job, group_, worker);
  spec.streams =
      plan_streams(spec_.logs, {{spec_.job.role, spec_.host, worker.local_rank, worker.rank},
                                spec_.folder.worker_folder(group_.restart_count, worker.local_rank),
                                spec_.folder.attempt_folder(group_.restart_count)});
  // Python would keep output for a pipe back until its buffer is full.
  if (spec.streams.out.mode == StreamMode::Pump)
    spec.environment.try_emplace(kPythonUnbuffered, "1");
  return spec;
}

void LocalElasticAgent::absorb(const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (event.kind == Event::Kind::Signal) absorb_signal(event);
    if (event.kind == Event::Kind::LauncherGone) launcher_gone_ = true;
  }
  absorb_exits(events);
  judge_end_of_round();
}

void LocalElasticAgent::absorb_signal(const Event& event) {
  if (!event.ends_job) {
    processes_.signal_workers(event.signal);
  } else if (end_signal_ == 0) {
    end_signal_ = event.signal;
    end_signal_at_ = processes_.now();
  } else if (processes_.now() - end_signal_at_ > kSameSignal) {
    hurry_ = true;
  }
}

void LocalElasticAgent::absorb_exits(const std::vector<Event>& events) {
  const bool told_to_stop = phase_ != Phase::Running || end_signal_ != 0 || launcher_gone_;
  std::vector<ProcessFailure> batch;
  for (const Event& event : events) {
    if (event.kind != Event::Kind::WorkerExited) continue;
    const auto worker = std::find_if(group_.workers.begin(), group_.workers.end(),
                                     [&](const Worker& w) { return w.pid == event.pid; });
    if (worker == group_.workers.end()) continue;
    worker->exit = event.exit;
    worker->usage = event.usage;
    worker->lived = processes_.now() - round_began_;
    worker->state = event.exit.ok() ? WorkerState::Succeeded
                    : told_to_stop  ? WorkerState::Stopped
                                    : WorkerState::Failed;
    if (worker->state == WorkerState::Failed) {
      batch.push_back(
          {worker->local_rank, worker->rank, worker->pid, worker->exit, worker->error_file, {}});
    }
  }
  order_failures(batch);
  failures_.insert(failures_.end(), batch.begin(), batch.end());
}

int LocalElasticAgent::running() const {
  return static_cast<int>(
      std::count_if(group_.workers.begin(), group_.workers.end(),
                    [](const Worker& w) { return w.state == WorkerState::Running; }));
}

Situation LocalElasticAgent::situation() const {
  return {.phase = phase_,
          .running = running(),
          .failed = !failures_.empty(),
          .interrupted = end_signal_ != 0,
          .hurry = hurry_,
          .deadline_over = deadline_ && processes_.now() >= *deadline_,
          .launcher_gone = launcher_gone_,
          .may_restart = verdict_ && verdict_->restart,
          .delay = verdict_ && verdict_->delay.count() > 0};
}

void LocalElasticAgent::stop_workers() {
  const int signal = end_signal_ != 0 ? end_signal_ : SIGTERM;
  processes_.signal_workers(signal);
  processes_.signal_workers(SIGCONT);  // a worker that is suspended could not react
  phase_ = Phase::Stopping;
  deadline_ = processes_.now() + spec_.grace;
  if (end_signal_ != 0) {
    processes_.note(fmt::format(
        "{}: passed on to {} worker{}, which may take {} to stop; send it again to kill at once",
        signal_name(signal), running(), running() == 1 ? "" : "s", seconds_text(spec_.grace)));
  }
}

void LocalElasticAgent::kill_workers() {
  processes_.signal_workers(SIGKILL);
  if (phase_ == Phase::Stopping && !hurry_ && !launcher_gone_) {
    processes_.note(fmt::format("{} worker{} did not stop within {}: killed", running(),
                                running() == 1 ? "" : "s", seconds_text(spec_.grace)));
  }
  phase_ = Phase::Killing;
  deadline_ = processes_.now() + kKillPatience;
}

void LocalElasticAgent::judge_end_of_round() {
  if (verdict_ || failures_.empty() || running() > 0) return;
  const ProcessFailure& cause = failures_.front();
  history_.push_back({cause.rank, cause.exit, processes_.now() - round_began_});
  verdict_ = judge_restart(spec_.restarts, history_);
}

void LocalElasticAgent::announce_restart() {
  const ProcessFailure& cause = failures_.front();
  const std::string when =
      verdict_->delay.count() > 0 ? " in " + seconds_text(verdict_->delay) : "";
  processes_.note(fmt::format("rank {} (local rank {}, pid {}): {}; restart {} of {}{}", cause.rank,
                              cause.local_rank, cause.pid, describe_exit(cause.exit),
                              verdict_->number, spec_.restarts.max_restarts, when));
}

void LocalElasticAgent::delay_restart() {
  announce_restart();
  processes_.sweep();
  phase_ = Phase::Delaying;
  deadline_ = processes_.now() + verdict_->delay;
}

void LocalElasticAgent::restart() {
  if (phase_ != Phase::Delaying) {
    announce_restart();
    processes_.sweep();
  }
  ++group_.restart_count;
  start_round();
}

RunResult LocalElasticAgent::finish(Outcome outcome) {
  RunResult result;
  result.outcome = outcome;
  processes_.stop_store();
  result.survivors = processes_.sweep();
  result.signal = end_signal_;
  for (auto& failure : failures_) failure.last_stderr = processes_.last_stderr(failure.local_rank);
  result.failures = failures_;
  result.stopped = static_cast<int>(
      std::count_if(group_.workers.begin(), group_.workers.end(), [](const Worker& w) {
        return w.state == WorkerState::Stopped || w.state == WorkerState::Running;
      }));
  result.workers = group_.workers;
  result.lived = processes_.now() - job_began_;
  result.restarts = group_.restart_count;
  result.max_restarts = spec_.job.max_restarts;
  if (verdict_) result.gave_up = verdict_->gave_up;
  return result;
}

}  // namespace ddp::launch
