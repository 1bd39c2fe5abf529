#include "launcher/agent/worker_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "launcher/agent/failure_order.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/report/error_file.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// A worker failed when it wrote its error file, if that is earlier; other nodes compare `lived`.
void date_back_to_error_file(ProcessFailure& failure) {
  const double earlier = failure.time - error_file_time(failure.error_file);  // -infinity: none
  if (earlier <= 0) return;
  failure.time -= earlier;
  const auto age =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(earlier));
  failure.lived -= std::min(age, failure.lived);  // the file's clock may be a file server's
}

}  // namespace

ProcessFailure failure_of(const Worker& worker, ProcessRunner& processes) {
  LifeSign sign = processes.life_sign(worker.local_rank);
  return {.local_rank = worker.local_rank,
          .rank = worker.rank,
          .pid = worker.pid,
          .exit = worker.exit,
          .error_file = worker.error_file,
          .cause = processes.oom_kills(),
          .heartbeat = std::move(sign.text),
          .progress = std::move(sign.progress),
          .time = processes.unix_time(),
          .lived = worker.lived};
}

ProcessFailure failure_without_worker(ExitStatus exit, std::string what,
                                      const ProcessRunner& processes) {
  return {.local_rank = ProcessFailure::kNoRank,
          .rank = ProcessFailure::kNoRank,
          .exit = exit,
          .cause = std::move(what),
          .time = processes.unix_time()};
}

std::string hang_text(const ProcessFailure& failure) {
  return fmt::format("{}; last heartbeat: {}", failure.hang,
                     failure.heartbeat.empty() ? "none, or an empty one" : failure.heartbeat);
}

std::vector<ProcessFailure> with_output(std::vector<ProcessFailure> failures,
                                        const ProcessRunner& processes) {
  for (ProcessFailure& failure : failures) {
    if (!failure.is_worker()) continue;
    failure.last_stderr = processes.last_stderr(failure.local_rank);
    const auto message = read_error_file(failure.error_file);
    if (message) failure.message = message->callstack.empty() ? message->text : message->callstack;
    date_back_to_error_file(failure);
  }
  return failures;
}

std::vector<ProcessFailure> with_details(std::vector<ProcessFailure> of_job,
                                         const std::vector<ProcessFailure>& own) {
  for (ProcessFailure& failure : of_job) {
    const auto found = std::find_if(own.begin(), own.end(), [&](const ProcessFailure& mine) {
      return failure.host.empty() && mine.local_rank == failure.local_rank;
    });
    if (found != own.end()) failure = *found;
  }
  return of_job;
}

std::vector<ProcessFailure> earlier_failures(std::vector<Worker>& workers,
                                             const ProcessFailure& seen, ProcessRunner& processes) {
  std::vector<ProcessFailure> earlier;
  for (Worker& worker : workers) {
    if (worker.state != WorkerState::kStopped && !worker.stopped_well) continue;
    if (!wrote_earlier(worker.error_file, seen)) continue;
    worker.state = WorkerState::kFailed;
    worker.stopped_well = false;
    earlier.push_back(failure_of(worker, processes));
    ProcessFailure& failure = earlier.back();
    date_back_to_error_file(failure);
    // How it ended is ddp-run's doing, not the worker's.
    if (worker.exit.signal == 0 && worker.exit.code != 0) continue;
    const auto message = read_error_file(worker.error_file);
    constexpr int kMostExitCode = 255;  // the file is the worker's
    const bool usable = message && message->code > 0 && message->code <= kMostExitCode;
    failure.exit = {usable ? message->code : kExitFailed, 0};
    failure.cause = "it wrote its error file, and was stopped before it had exited";
  }
  order_failures(earlier);
  return earlier;
}

Outcome how_interrupted(const RestartRules& rules, const std::vector<Worker>& workers) {
  const auto in_order = [&](const Worker& worker) {
    return worker.state != WorkerState::kRunning &&
           (worker.exit.ok() || is_preemption(rules, worker.exit));
  };
  const bool all = std::all_of(workers.begin(), workers.end(), in_order);
  const bool any = std::any_of(workers.begin(), workers.end(),
                               [](const Worker& worker) { return !worker.exit.ok(); });
  return all && any ? Outcome::kPreempted : Outcome::kInterrupted;
}

std::vector<WorkerStatus> worker_statuses(const WorkerGroup& group, ProcessRunner& processes) {
  std::vector<WorkerStatus> statuses;
  for (const Worker& worker : group.workers) {
    WorkerStatus& entry = statuses.emplace_back();
    entry = {.rank = worker.rank,
             .local_rank = worker.local_rank,
             .pid = worker.pid,
             .state = worker.state};
    if (worker.state != WorkerState::kRunning) continue;
    const LifeSign sign = processes.life_sign(worker.local_rank);
    entry.silence = std::chrono::duration<double>(processes.now() - sign.at).count();
    entry.heartbeat = sign.text;
    entry.step = sign.progress.step;
  }
  return statuses;
}

std::vector<Worker> final_workers(const WorkerGroup& group, Clock::time_point job_began,
                                  const ProcessRunner& processes) {
  std::vector<Worker> workers = group.workers;
  for (Worker& worker : workers) {
    worker.spawned = group.began - job_began;
    if (const auto first = processes.first_output(worker.local_rank))
      worker.first_line = *first - group.began;
  }
  return workers;
}

}  // namespace ddp::launch
