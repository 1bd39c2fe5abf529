#include "launcher/agent_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/agent/agent.h"
#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"
#include "launcher/cluster/lifeline.h"
#include "launcher/hang/file_timers.h"
#include "launcher/job_rendezvous.h"
#include "launcher/process/guardian.h"
#include "launcher/process/standard_input.h"
#include "launcher/process/worker_processes.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/http_server.h"
#include "launcher/report/inspect_socket.h"
#include "launcher/report/job_status.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

JobPlan with_events(JobPlan plan, const LaunchConfig& config, LogPump& logs) {
  const std::string& path = config.event_log;
  const auto file = path.empty() ? nullptr : logs.open_file(path, append_to(path));
  if (!file && !config.events_on_console) return plan;
  const bool dynamic = config.group && !config.group->rules.fixed_ranks;
  const EventLog::Job job{plan.job.run_id, plan.job.role, plan.host, config.program,
                          config.etcd ? "etcd"
                          : dynamic   ? "c10d"
                                      : "static"};
  plan.events = EventLog(job, [&logs, &config, file](const std::string& line) {
    if (file) file(line);
    if (config.events_on_console) logs.print(line);
  });
  return plan;
}

std::string url_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// The ddp-run --hosts on this machine that started this one; 0: none, or ssh hides it.
pid_t starter_of(pid_t launcher) {
  pid_t pid = launcher;
  do {
    pid = read_stat(process_folder(pid)).parent;
  } while (pid > 1 && first_line(process_folder(pid) + "/comm") != kCommand);
  return std::max(pid, 0);
}

JobNames names_of(const JobPlan& plan, const std::string& folder, pid_t starter,
                  const LocalElasticAgent& agent) {
  JobNames names{
      plan.job.run_id, folder, !plan.folder.is_private(), {::getpid(), ::getppid(), plan.launcher}};
  if (starter > 0) names.pids.push_back(starter);
  for (const WorkerStatus& worker : agent.status().workers) names.pids.push_back(worker.pid);
  return names;
}

InspectSocket::Job inspected(const LaunchConfig& config, const JobPlan& plan,
                             LocalElasticAgent& agent) {
  std::error_code ignored;
  const std::string folder = std::filesystem::weakly_canonical(plan.folder.path(), ignored);
  const pid_t starter = config.lifeline.empty() ? 0 : starter_of(plan.launcher);
  return {.names = [&, folder, starter] { return names_of(plan, folder, starter, agent); },
          .show_status = [&](const InspectSocket::Reply& reply) { agent.show_status(reply); },
          .show_stacks =
              [&](const InspectSocket::Reply& reply) {
                const int others = agent.status().nodes - 1;
                agent.show_stacks([reply, others](const std::string& text, bool complete) {
                  std::string rest = "\n";
                  if (others > 0) {
                    rest +=
                        fmt::format("the other {} of this job: on the stderr of their ddp-run\n",
                                    plural(others, "node"));
                  }
                  reply(text + rest, complete);
                });
              }};
}

// Optional participants of the poll loop, next to the workers and the rendezvous.
class Services {
 public:
  Services(const LaunchConfig& config, const JobPlan& plan, LocalElasticAgent& agent,
           WorkerProcesses& processes)
      : inspect_(plan.job.shm_dir, inspected(config, plan, agent)) {
    processes.also_poll(inspect_);
    if (!config.lifeline.empty()) processes.also_poll(lifeline_.emplace(take_standard_input()));
    if (config.health) serve_health(*config.health, plan, agent, processes);
    if (!plan.job.timer_file.empty()) {
      processes.also_poll(timers_.emplace(
          plan.job.timer_file, [&](const ExpiredTimer& timer) { processes.end_expired(timer); }));
    }
  }

 private:
  void serve_health(const Endpoint& endpoint, const JobPlan& plan, const LocalElasticAgent& agent,
                    WorkerProcesses& processes) {
    health_.emplace(endpoint, [&](const std::string& path) {
      JobStatus status = agent.status();
      status.worker_metrics = read_worker_metrics(plan.job.shm_dir);
      return answer_about(status, path);
    });
    processes.also_poll(*health_);
    say(fmt::format("/health and /metrics: http://{}:{}", url_host(endpoint.host),
                    health_->port()));
  }

  InspectSocket inspect_;
  std::optional<Lifeline> lifeline_;
  std::optional<HttpServer> health_;
  std::optional<FileTimers> timers_;
};

ReportContext report_context(const RunResult& result, const JobPlan& plan,
                             const LaunchConfig& config) {
  const bool outlives = plan.folder.has_logs() || !plan.folder.is_private();
  return {.host = plan.host,
          .world_size = result.world_size,
          .stderr_lines = plan.logs.report_lines,
          .logs = outlives ? plan.folder.path() : "",
          .one_console = !config.lifeline.empty(),
          .shows_all_ranks = plan.logs.shows_all_ranks(),
          .summary = config.summary};
}

void report_console_error(LogPump& logs) {
  const int error = logs.console_error();
  if (error == 0) return;
  // Not directly: a disk that blocks would block this process.
  logs.print("error: cannot write the workers' output: " + error_text(error) +
             "; free space or redirect ddp-run's output elsewhere, and rerun\n");
}

// Lost output must not look like success; a failure of the job keeps its own code.
int code_after_losses(int code, const LogPump& logs) {
  const bool lost = logs.console_error() != 0 || logs.files_given_up();
  return lost && code == kExitDone ? kExitFailed : code;
}

// Nothing of the job may be left within a second, so nothing waits for the console.
int end_without_guardian(const RunResult& result, const RunFolder& folder, ResultWriter& results,
                         LogPump& logs) {
  if (const auto write = results.files_write(result)) write();
  folder.keep_logs();
  results.write_to_folder();
  logs.drop_console();
  return exit_code(result);
}

// By the thread of the log files, as a disk may block; once that has given up, by a process.
void write_files(const RunResult& result, ResultWriter& results, LogPump& logs) {
  const auto write = results.files_write(result);
  if (!write) return;
  const auto without_text = [write](std::string_view) { return write(), 0; };
  if (logs.files_given_up())
    aside([&] { return write(), true; });
  else
    logs.open_file(results.files(), without_text)("");
}

// By the same thread.
void finish_folder(const RunFolder& folder, bool keeps_logs, const ResultWriter& results,
                   LogPump& logs) {
  if (folder.path().empty()) return;
  const auto finish = [folder, keeps_logs, write = results.folder_write()](std::string_view) {
    if (keeps_logs) folder.keep_logs();
    write();
    return 0;
  };
  logs.open_file(folder.path(), finish)("");
}

// By the same thread.
void remove_folder(const RunFolder& folder, LogPump& logs) {
  if (!folder.is_private()) return;
  const auto remove = [folder](std::string_view /*nothing*/) {
    if (!folder.keeps_logs()) folder.remove_if_private();
    return 0;
  };
  logs.open_file(folder.path(), remove)("");
}

int end_with_report(const RunResult& result, JobPlan& plan, const LaunchConfig& config,
                    ResultWriter& results, StopRequests& requests, WorkerProcesses& processes) {
  // A signal ends the wait for the console soon; otherwise a slow reader loses no output.
  const bool ended_itself =
      result.outcome == Outcome::kSucceeded || result.outcome == Outcome::kFailed;
  const auto patience = ended_itself ? LogPump::Patience::kUnlimited : LogPump::Patience::kSeconds;
  const ReportContext context = report_context(result, plan, config);
  LogPump& logs = processes.logs();
  const auto flush = [&] {
    const bool complete = processes.flush(patience, requests);
    if (logs.files_given_up()) plan.folder = RunFolder();  // it would block this process
    results.use_folder(plan.folder);
    return complete;
  };
  const bool shown = flush();
  if (const std::string problems = results.take_problems(); !problems.empty()) logs.print(problems);
  // After a success, copies of console output are of no use.
  const bool failed = result.outcome == Outcome::kFailed || has_failed(result);
  finish_folder(plan.folder, failed || !shown, results, logs);
  if (!failed && !shown && plan.folder.is_private() && plan.folder.has_logs())
    logs.note("the console missed some output; full logs: " + plan.folder.path());
  logs.print(final_report(result, context));
  flush();
  report_console_error(logs);
  remove_folder(plan.folder, logs);
  flush();
  const int code = code_after_losses(exit_code(result), logs);
  if (code != exit_code(result)) {
    results.record(result, plan.job.run_id, plan.host, code);
    write_files(result, results, logs);
    finish_folder(plan.folder, false, results, logs);
    flush();
  }
  plan.folder = RunFolder();  // done with
  return code;
}

}  // namespace

int run_agent(const LaunchConfig& config, JobPlan& plan, const SignalMailbox& signals,
              int guardian_pipe, ResultWriter& results) {
  raise_descriptor_limit();
  const JobRendezvous rendezvous = make_rendezvous(config, plan, signals);
  WorkerProcesses processes(signals, guardian_pipe);
  if (rendezvous.group) processes.also_poll(*rendezvous.group);
  LocalElasticAgent agent(with_events(plan, config, processes.logs()), rendezvous.get(), processes);
  const Services services(config, plan, agent, processes);
  const RunResult result = agent.run();
  results.record(result, plan.job.run_id, plan.host, exit_code(result));
  if (result.outcome == Outcome::kGuardianGone)
    return end_without_guardian(result, plan.folder, results, processes.logs());
  // Before the wait for a slow console: the file means that all workers have ended.
  write_files(result, results, processes.logs());
  return end_with_report(result, plan, config, results, agent.stop_requests(), processes);
}

}  // namespace ddp::launch
