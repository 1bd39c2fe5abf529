#include "launcher/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>

#include "launcher/agent/agent.h"
#include "launcher/base/command.h"
#include "launcher/base/descriptor_limit.h"
#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/null_device.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/text.h"
#include "launcher/base/worker.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/option_table.h"
#include "launcher/hang/file_timers.h"
#include "launcher/job_rendezvous.h"
#include "launcher/plan/hosts_plan.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/memory_folder.h"
#include "launcher/plan/program.h"
#include "launcher/plan/worker_env.h"
#include "launcher/process/guardian.h"
#include "launcher/process/host_runner.h"
#include "launcher/process/input_file.h"
#include "launcher/process/lifeline.h"
#include "launcher/process/standard_input.h"
#include "launcher/process/worker_processes.h"
#include "launcher/report/error_file.h"
#include "launcher/report/explain.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/http_server.h"
#include "launcher/report/run_record.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr const char* kNoResult = "ddp-run's agent process ended without a result";

// A descriptor opened by ddp-run must never become a worker's stdin, stdout or stderr.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::fcntl(open_null_device(O_RDWR), F_SETFD, 0);
  }
}

RunFiles files_of(const LogOptions& logs) {
  if (!logs.wants_files()) return RunFiles::ErrorFiles;
  return logs.only_copies() ? RunFiles::LogCopies : RunFiles::Logs;
}

std::string report(const RunResult& result, const JobPlan& plan, const LaunchConfig& config) {
  constexpr std::ptrdiff_t kLongestReport = 30;
  std::string text;
  for (const auto& survivor : result.survivors) {
    text += fmt::format("error: {} could not be killed\n", survivor);
  }
  if (result.outcome == Outcome::Preempted) {
    text += fmt::format(
        "ddp-run: the workers were preempted and saved their state (exit code {}); rerun the same "
        "command to continue\n",
        kExitPreempted);
  }
  if (result.workers.empty() && !result.failures.empty() && !result.failures.front().is_worker())
    return text + fmt::format("error: {}\n", result.failures.front().cause);
  const std::string logs =
      plan.folder.has_logs() || !plan.folder.is_private() ? plan.folder.path() : "";
  // What trainer has printed itself needs no report.
  const bool brief = is_explained_usage_error(result) && plan.logs.shows_all_ranks();
  if (brief) {
    text += fmt::format(
        "ddp-run: the job failed: trainer rejected its command line or configuration (exit code "
        "{}); see its message{}\n",
        kExitUsage, logs.empty() ? "" : "; logs: " + logs);
  }
  const bool failed = !brief && has_failed(result);
  if (failed) {
    const ReportContext context{plan.host, result.world_size, plan.logs.report_lines, logs,
                                !config.lifeline.empty()};
    text += failure_report(result, context);
  }
  const auto lines = std::count(text.begin(), text.end(), '\n') + std::ssize(result.workers) + 1;
  // The table of many workers would bury the cause; --summary still prints it.
  const bool fits = failed && std::ssize(result.workers) > 1 && lines <= kLongestReport;
  return config.summary || fits ? text + summary_table(result) : text;
}

// A failure here must not hide how the job ended.
void record_result(const LaunchConfig& config, const std::string& text) {
  try {
    if (!config.result_json.empty()) write_result_file(config.result_json, text);
  } catch (const LaunchError& error) {
    say_error(error.what());
  }
}

// For --explain, which makes do without it: a full disk has been reported already.
void record_in_folder(const RunFolder& folder, const std::string& text) {
  const std::string file = folder.result_file();
  try {
    if (!file.empty()) write_result_file(file, text);
  } catch (const LaunchError&) {
  }
}

// An error of ddp-run itself is a result as well.
int with_errors_recorded(const LaunchConfig& config, const std::function<int()>& body) {
  try {
    return body();
  } catch (const LaunchError& error) {
    record_result(config, error_json(error.exit_code(), error.what()));
    throw;
  } catch (const std::exception& error) {
    record_result(config, error_json(kExitFailed, error.what()));
    throw;
  }
}

// An enclosing launcher, or torch's `record`, reads the cause from its own error file.
void pass_on_cause(const RunResult& result, const Environment& inherited) {
  const auto around = inherited.find(kErrorFile);
  if (around == inherited.end() || around->second.empty() || result.failures.empty()) return;
  const ProcessFailure& cause = result.failures.front();
  const int code = cause.exit.signal != 0 ? -cause.exit.signal : cause.exit.code;
  const std::string text = error_file_to_pass_on(cause.error_file, code);
  try {
    if (!text.empty()) write_result_file(around->second, text);
  } catch (const LaunchError&) {  // must not hide the worker's exit code
    say("cannot write the cause to TORCHELASTIC_ERROR_FILE=" + around->second);
  }
}

JobPlan with_events(JobPlan plan, const LaunchConfig& config, WorkerProcesses& processes) {
  const auto file = config.event_log.empty() ? nullptr : append_to(config.event_log);
  if (!file && !config.events_on_console) return plan;
  const bool dynamic = config.group && !config.group->rules.fixed_ranks;
  const EventLog::Job job{plan.job.run_id, plan.job.role, plan.host, config.program,
                          dynamic ? "c10d" : "static"};
  plan.events = EventLog(job, [&processes, &config, file](const std::string& line) {
    if (file) file(line);
    if (config.events_on_console) processes.print(line);
  });
  return plan;
}

std::string url_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// Lost output must not look like success; a failure of the job keeps its own code.
int code_after_console_error(int code, int error) {
  if (error == 0) return code;
  say_error("cannot write the workers' output: " + error_text(error) +
            "; free space or redirect ddp-run's output elsewhere, and rerun");
  return code == kExitDone ? kExitFailed : code;
}

int run_agent(const LaunchConfig& config, const JobPlan& plan, const SignalMailbox& signals,
              int launcher_pipe) {
  raise_descriptor_limit();
  const JobRendezvous rendezvous = make_rendezvous(config, plan, signals);
  WorkerProcesses processes(signals, launcher_pipe);
  if (rendezvous.group) processes.also_poll(*rendezvous.group);
  std::optional<Lifeline> lifeline;
  if (!config.lifeline.empty()) {
    lifeline.emplace(take_standard_input());
    processes.also_poll(*lifeline);
  }
  LocalElasticAgent agent(with_events(plan, config, processes), rendezvous.get(), processes);
  std::optional<HttpServer> health;
  if (config.health) {
    health.emplace(*config.health, [&](const std::string& path) {
      JobStatus status = agent.status();
      status.worker_metrics = read_worker_metrics(plan.job.shm_dir);
      return answer_about(status, path);
    });
    processes.also_poll(*health);
    say(fmt::format("/health and /metrics: http://{}:{}", url_host(config.health->host),
                    health->port()));
  }
  std::optional<FileTimers> timers;
  if (!plan.job.timer_file.empty()) {
    timers.emplace(plan.job.timer_file,
                   [&](const ExpiredTimer& timer) { processes.end_expired(timer); });
    processes.also_poll(*timers);
  }
  const RunResult result = agent.run();
  const std::string record = result_json(result, plan.job.run_id, plan.host);
  record_result(config, record);
  pass_on_cause(result, plan.inherited);
  if (result.outcome == Outcome::LauncherGone) {
    plan.folder.keep_logs();
    record_in_folder(plan.folder, record);
    processes.drop_console();  // nothing of the job may be left within a second
    return exit_code(result);
  }
  // Whoever sent a signal wants an end; otherwise no slow reader loses output or the report.
  const bool ended_itself =
      result.outcome == Outcome::Succeeded || result.outcome == Outcome::Failed;
  const auto patience = ended_itself ? LogPump::Patience::Unlimited : LogPump::Patience::Seconds;
  const bool shown = processes.flush_console(patience);
  // After a success, copies of console output are of no use.
  const bool failed = result.outcome == Outcome::Failed || has_failed(result);
  if (failed || !shown) plan.folder.keep_logs();
  record_in_folder(plan.folder, record);
  if (!failed && plan.folder.keeps_logs())
    processes.note("the console missed some output; full logs: " + plan.folder.path());
  processes.print(report(result, plan, config));
  processes.flush_console(patience);
  return code_after_console_error(exit_code(result), processes.console_error());
}

int guarded(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const LaunchError& error) {
    say_error(error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    say_error(fmt::format("{} (internal error; please report it)", error.what()));
    return kExitFailed;
  }
}

// Prints what the user asked for: a full disk must not look like success.
int print(std::string_view text) {
  if (const int error = write_fully(STDOUT_FILENO, text); error == EPIPE) {
    return kExitSignalBase + SIGPIPE;  // the reader has seen enough: be silent
  } else if (error != 0) {
    throw LaunchError(kExitFailed, "cannot write to standard output: " + error_text(error));
  }
  return kExitDone;
}

// Prints one shell line per worker, with ddp-run's changes to the environment. XXXXXX stands for
// what is chosen when the folders are created.
int dry_run(const LaunchConfig& config) {
  JobPlan plan = plan_job(config);
  plan.folder = RunFolder::planned(config.log_dir, plan.job.run_id, files_of(config.logs));
  plan.job.shm_dir = MemoryFolder::planned(MemoryFolder::kPlace);
  plan.job.timer_file = timer_file(plan.inherited, {plan.folder.path(), plan.job.shm_dir});
  WorkerGroup group;
  if (config.group) {
    group.rendezvous = supposed_round(*config.group, plan.job.local_world_size);
  } else {
    group.rendezvous = local_rendezvous(config, plan).next_round();
  }
  std::string lines;
  for (int local_rank = 0; local_rank < plan.job.local_world_size; ++local_rank) {
    const Worker worker = plan_worker(plan, group, local_rank);
    lines += shell_line(inherited_environment(), worker_spec(plan, group, worker));
  }
  return print(lines);
}

// Removes the folders on disk and in memory. Guardian and agent both do so: either may be the last
// one left, and the agent exits without running destructors.
struct CleanUp {
  const RunFolder& folder;
  const MemoryFolder& memory;
  ~CleanUp() { now(); }
  void now() const {
    if (!folder.keeps_logs()) folder.remove_if_private();
    memory.remove();
  }
};

// An agent that exits normally removes its logs, or keeps them and says where.
void keep_logs_of_killed_agent(const RunFolder& folder) {
  if (!folder.has_logs() || !folder.is_private() || folder.keeps_logs()) return;
  if (::access(folder.path().c_str(), F_OK) != 0) return;
  folder.keep_logs();
  say("logs of this run: " + folder.path());
}

int launch_job(const LaunchConfig& config, SignalMailbox& signals) {
  JobPlan plan = plan_job(config);
  plan.folder = RunFolder::create(config.log_dir, plan.job.run_id, files_of(config.logs));
  const MemoryFolder memory(MemoryFolder::kPlace);
  plan.job.shm_dir = memory.path();
  const CleanUp clean_up{plan.folder, memory};
  plan.job.timer_file = timer_file(plan.inherited, {plan.folder.path(), plan.job.shm_dir});
  if (plan.folder.has_logs() && !plan.folder.is_private())
    say("logs of this run: " + plan.folder.path());
  if (plan.job.omp_num_threads > 0) {
    say(fmt::format(
        "OMP_NUM_THREADS={} for each of {} workers (available CPUs / workers); set it to override",
        plan.job.omp_num_threads, plan.job.local_world_size));
  }
  leave_input_to_foreground();
  const int code = run_guarded(signals, [&](int launcher_pipe) {
    const int agent_code = guarded([&] {
      return with_errors_recorded(config, [&] {
        try {
          return run_agent(config, plan, signals, launcher_pipe);
        } catch (const LaunchError& error) {
          record_in_folder(plan.folder, error_json(error.exit_code(), error.what()));
          throw;
        }
      });
    });
    clean_up.now();
    return agent_code;
  });
  if (code != kExitDone) keep_logs_of_killed_agent(plan.folder);
  const std::string file = plan.folder.result_file();
  if (!file.empty() && ::access(file.c_str(), F_OK) != 0)
    record_in_folder(plan.folder, error_json(code, kNoResult));
  return code;
}

// An earlier run's result must not pass for this one's: remove it first, and always write one,
// whatever happens to the agent.
int launch(const LaunchConfig& config, SignalMailbox& signals) {
  const std::string& file = config.result_json;
  if (file.empty()) return launch_job(config, signals);
  prepare_result_file(file);
  const int code = with_errors_recorded(config, [&] { return launch_job(config, signals); });
  if (::access(file.c_str(), F_OK) == 0) return code;
  try {
    write_result_file(file, error_json(code, kNoResult));
  } catch (const LaunchError&) {  // the agent has reported it
  }
  return code;
}

int launch_on_hosts(const LaunchConfig& config, const SignalMailbox& signals) {
  constexpr std::size_t kLongestHostfile = std::size_t{64} << 20;
  const std::string& file = config.hosts->file;
  const std::string hosts =
      file.empty() ? ""
                   : read_input_file({"--hosts=@", "give a file with one host per line"}, file,
                                     kLongestHostfile, signals);
  const HostsPlan plan = plan_hosts(*config.hosts, hosts, HostsPlace::of_this_process());
  return config.action == LaunchAction::DryRun ? print(shell_lines(plan))
                                               : run_on_hosts(plan, signals);
}

void check_version(const std::string& starter) {
  if (starter.empty() || starter == DDP_VERSION) return;
  usage_error(fmt::format("this host has ddp-run " DDP_VERSION
                          ", but the job was started by ddp-run {}; install the same version",
                          printable(starter)));
}

}  // namespace

int guarded_main(int argc, const char* const* argv, SignalMailbox& signals) noexcept {
  return guarded([&] {
    open_standard_streams();
    const LaunchConfig config = parse_launch_args(argc, argv, inherited_environment());
    for (const auto& hint : config.hints) say(hint);
    signals.handle(config.stop_signals);
    check_version(config.lifeline);
    if (config.action == LaunchAction::Explain) return print(explain_run(config.explained));
    if (config.hosts) return launch_on_hosts(config, signals);
    switch (config.action) {
      case LaunchAction::Print:
        return print(config.printed);
      case LaunchAction::DryRun:
        return dry_run(config);
      case LaunchAction::Explain:
      case LaunchAction::Run:
        break;
    }
    return launch(config, signals);
  });
}

}  // namespace ddp::launch
