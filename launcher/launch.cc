#include "launcher/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/agent_process.h"
#include "launcher/base/command.h"
#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/text.h"
#include "launcher/base/worker.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cluster/host_runner.h"
#include "launcher/cluster/hosts_plan.h"
#include "launcher/hang/file_timers.h"
#include "launcher/job_rendezvous.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/memory_folder.h"
#include "launcher/plan/program.h"
#include "launcher/plan/worker_env.h"
#include "launcher/process/guardian.h"
#include "launcher/process/input_file.h"
#include "launcher/process/standard_input.h"
#include "launcher/report/explain.h"
#include "launcher/report/inspect_socket.h"
#include "launcher/result_writer.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// A descriptor opened by ddp-run must never become a worker's stdin, stdout or stderr.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::fcntl(open_null_device(O_RDWR).release(), F_SETFD, 0);
  }
}

RunFiles files_of(const LogOptions& logs) {
  if (!logs.wants_files()) return RunFiles::kErrorFiles;
  return logs.only_copies() ? RunFiles::kLogCopies : RunFiles::kLogs;
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

// Prints requested output; a full disk must not look like success.
int print(std::string_view text) {
  if (const int error = write_fully(STDOUT_FILENO, text); error == EPIPE) {
    return kExitSignalBase + SIGPIPE;  // the reader has closed the pipe: print no error
  } else if (error != 0) {
    throw LaunchError(kExitFailed, "cannot write to standard output: " + error_text(error));
  }
  return kExitDone;
}

// Prints one shell line per worker, with ddp-run's changes to the environment. XXXXXX stands for
// the random parts of folder names.
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

// Removes the folders on disk and in memory. Guardian and agent both do, as either may be the last
// one alive, and the agent exits without running destructors.
struct CleanUp {
  const RunFolder& folder;
  const MemoryFolder& memory;
  ~CleanUp() { now(); }
  void now() const {
    memory.remove();
    if (!folder.is_private()) return;
    aside([this] {
      if (!folder.keeps_logs()) folder.remove_if_private();
      return true;
    });
  }
};

bool keep_logs_unless_removed(const RunFolder& folder) {
  if (!folder.has_logs() || !folder.is_private() || folder.keeps_logs()) return false;
  if (::access(folder.path().c_str(), F_OK) != 0) return false;
  folder.keep_logs();
  return true;
}

// An agent that exits normally removes its logs, or keeps them and prints where.
void finish_for_agent(const RunFolder& folder, ResultWriter& results, int code) {
  results.take_over(code);
  const bool kept = aside([&] {
    results.write_if_missing();
    const bool now = keep_logs_unless_removed(folder);
    results.write_if_missing();  // a folder has a result once it is kept
    return now;
  });
  if (!kept) return;
  aside([&] { return say("logs of this run: " + folder.path()), true; }, STDERR_FILENO);
}

void announce(const LaunchConfig& config, const JobPlan& plan) {
  const auto& shown = config.logs.console_ranks;
  if (!shown.empty() && *shown.begin() >= plan.job.local_world_size) {
    say(fmt::format("--local-ranks-filter={}: the last local rank here is {}; no output is shown",
                    fmt::join(shown, ","), plan.job.local_world_size - 1));
  }
  if (!config.preflight.empty() && !plan.preflight)
    say("--preflight=auto: no trainer next to ddp-run or on PATH; nothing is checked");
  if (plan.folder.has_logs() && !plan.folder.is_private())
    say("logs of this run: " + plan.folder.path());
  if (plan.job.omp_num_threads > 0) {
    say(fmt::format(
        "OMP_NUM_THREADS={} for each of {} workers (its share of the CPUs); set it to override",
        plan.job.omp_num_threads, plan.job.local_world_size));
  }
}

int launch_job(const LaunchConfig& config, SignalMailbox& signals, ResultWriter& results) {
  JobPlan plan = plan_job(config);
  plan.folder = RunFolder::create(config.log_dir, plan.job.run_id, files_of(config.logs));
  results.use_folder(plan.folder);
  const MemoryFolder memory(MemoryFolder::kPlace);
  plan.job.shm_dir = memory.path();
  const CleanUp clean_up{plan.folder, memory};
  plan.job.timer_file = timer_file(plan.inherited, {plan.folder.path(), plan.job.shm_dir});
  plan.launcher = ::getpid();
  announce(config, plan);
  leave_input_to_foreground();
  const int code = run_guarded(signals, [&](int guardian_pipe) {
    const int agent_code = guarded([&] {
      return results.run([&] { return run_agent(config, plan, signals, guardian_pipe, results); });
    });
    clean_up.now();
    return agent_code;
  });
  if (code != kExitDone) finish_for_agent(plan.folder, results, code);
  // Kept, or removed by the agent.
  if (code == kExitDone || plan.folder.has_logs()) plan.folder = RunFolder();
  return code;
}

int launch(const LaunchConfig& config, SignalMailbox& signals) {
  ResultWriter results(config.result_json, inherited_environment());
  return results.run([&] { return launch_job(config, signals, results); });
}

int launch_on_hosts(const LaunchConfig& config, const SignalMailbox& signals) {
  constexpr std::size_t kLongestHostfile = std::size_t{64} << 20;
  const std::string& file = config.hosts->file;
  const std::string hosts =
      file.empty() ? ""
                   : read_input_file({"--hosts=@", "give a file with one host per line"}, file,
                                     kLongestHostfile, signals);
  const HostsPlan plan = plan_hosts(*config.hosts, hosts, HostsPlace::of_this_process());
  return config.action == LaunchAction::kDryRun ? print(shell_lines(plan))
                                                : run_on_hosts(plan, signals);
}

int inspect(const LaunchConfig& config) {
  const Inspection job = inspect_job(MemoryFolder::kPlace, config.question, config.explained);
  const int code = print(job.text);
  return job.complete ? code : kExitFailed;
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
    if (config.action == LaunchAction::kExplain) return print(explain_run(config.explained));
    if (config.hosts) return launch_on_hosts(config, signals);
    switch (config.action) {
      case LaunchAction::kPrint:
        return print(config.printed);
      case LaunchAction::kDryRun:
        return dry_run(config);
      case LaunchAction::kInspect:
        return inspect(config);
      case LaunchAction::kExplain:
      case LaunchAction::kRun:
        break;
    }
    return launch(config, signals);
  });
}

}  // namespace ddp::launch
