#include "launcher/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>

#include "launcher/agent.h"
#include "launcher/console.h"
#include "launcher/error_file.h"
#include "launcher/failure_report.h"
#include "launcher/guardian.h"
#include "launcher/launch_config.h"
#include "launcher/local_world_size.h"
#include "launcher/program.h"
#include "launcher/run_record.h"
#include "launcher/static_rendezvous.h"
#include "launcher/subprocess.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// A descriptor that ddp-run opens must never become somebody's stdin, stdout or stderr.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO && ::fcntl(fd, F_SETFD, 0) == 0);
  if (fd > STDERR_FILENO) ::close(fd);
}

std::string random_id() {
  std::array<std::uint64_t, 2> bits{};
  [[maybe_unused]] const auto filled = ::getrandom(bits.data(), sizeof bits, 0);
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", bits[0] >> 32,
                     (bits[0] >> 16) & 0xffff, bits[0] & 0xfff, 0x8000 | ((bits[1] >> 48) & 0x3fff),
                     bits[1] & 0xffff'ffff'ffff);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string names_of(const std::vector<int>& signals) {
  std::vector<std::string> names;
  for (const int signal : signals) names.push_back(signal_name(signal));
  return fmt::format("{}", fmt::join(names, ","));
}

// 0: the user's OMP_NUM_THREADS, or the library's default for a single worker, is left alone.
int omp_threads(const Environment& inherited, int workers, int cpus) {
  if (workers == 1 || inherited.count(kOmpNumThreads) > 0) return 0;
  return std::max(1, cpus / workers);
}

JobInfo describe_job(const LaunchConfig& config, const MachineView& machine,
                     const Environment& inherited) {
  JobInfo job;
  job.role = config.role;
  job.run_id = config.rdzv_id.empty() ? random_id() : config.rdzv_id;
  job.local_world_size = local_world_size(config.nproc_per_node, machine);
  job.max_restarts = config.restarts.max_restarts;
  job.signals_to_handle = names_of(config.stop_signals);
  job.omp_num_threads = omp_threads(inherited, job.local_world_size, machine.cpus);
  job.virtual_local_rank = config.virtual_local_rank;
  if (job.virtual_local_rank) {
    job.gpus = gpu_of_each_worker(machine, job.local_world_size, "virtual-local-rank");
  }
  return job;
}

AgentSpec describe_agent(const LaunchConfig& config) {
  MachineView machine = MachineView::of_this_process();
  AgentSpec spec;
  spec.inherited = inherited_environment();
  if (!config.devices.empty()) {
    machine.cuda_visible_devices = config.devices;
    spec.inherited[kCudaVisibleDevices] = config.devices;
  }
  spec.job = describe_job(config, machine, spec.inherited);
  spec.command = resolve_program(config, ProgramPlaces::of_this_process());
  spec.grace = config.shutdown_timeout;
  spec.restarts = config.restarts;
  spec.logs = config.logs;
  spec.host = host_name();
  return spec;
}

std::string find_store(const LaunchConfig& config) {
  return find_store_program(config.store, ProgramPlaces::of_this_process());
}

StaticRendezvous rendezvous_for(const LaunchConfig& config, const std::string& store_program) {
  return StaticRendezvous(config.master_addr, config.master_port, !store_program.empty());
}

void report(const RunResult& result, const AgentSpec& spec) {
  for (const auto& survivor : result.survivors) say_error(survivor + " could not be killed");
  if (result.outcome != Outcome::Failed || result.failures.empty()) return;
  const ReportContext context{spec.host, spec.job.local_world_size, spec.logs.report_lines,
                              spec.folder.is_private() ? "" : spec.folder.path()};
  write_fully(STDERR_FILENO, failure_report(result, context));
}

// A launcher around this one, or a job of torch's `record`, reads the cause in an error file of its
// own.
void pass_on_cause(const RunResult& result, const Environment& inherited) {
  const auto around = inherited.find(kErrorFile);
  if (around == inherited.end() || around->second.empty() || result.failures.empty()) return;
  const ProcessFailure& cause = result.failures.front();
  const int code = cause.exit.signal != 0 ? -cause.exit.signal : cause.exit.code;
  const std::string text = error_file_to_pass_on(cause.error_file, code);
  try {
    if (!text.empty()) write_result_file(around->second, text);
  } catch (const LaunchError&) {  // must not hide the worker's exit code
    say("the cause could not be written to TORCHELASTIC_ERROR_FILE=" + around->second);
  }
}

int run_agent(const LaunchConfig& config, const AgentSpec& spec, StaticRendezvous& rendezvous,
              const std::string& store_program, const SignalMailbox& signals, int launcher_pipe) {
  SubprocessSet processes(signals, launcher_pipe, store_program);
  const RunResult result = LocalElasticAgent(spec, rendezvous, processes).run();
  if (result.outcome == Outcome::LauncherGone) {
    processes
        .drop_console();  // within a second nothing of the job is to be left, this process neither
  } else {
    processes.flush_console();
  }
  report(result, spec);
  pass_on_cause(result, spec.inherited);
  if (config.summary) write_fully(STDERR_FILENO, summary_table(result));
  if (!config.result_json.empty()) {
    write_result_file(config.result_json, result_json(result, spec.job.run_id, spec.host));
  }
  if (result.outcome == Outcome::LauncherGone) spec.folder.remove_if_private();
  return exit_code(result);
}

int guarded(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const LaunchError& error) {
    say_error(error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    say_error(fmt::format("{} (unexpected; please report it)", error.what()));
    return kExitFailed;
  }
}

// For what the user asked to see: a full disk must not pass for success.
int print(std::string_view text) {
  if (const int error = write_fully(STDOUT_FILENO, text); error == EPIPE) {
    return kExitSignalBase + SIGPIPE;  // the reader has seen enough: quiet, as any other tool
  } else if (error != 0) {
    throw LaunchError(kExitFailed, "cannot write to standard output: " + error_text(error));
  }
  return kExitDone;
}

// One line per worker that a shell can run, with what ddp-run adds to the environment.
int dry_run(const LaunchConfig& config) {
  const AgentSpec spec = describe_agent(config);
  WorkerGroup group;
  group.rendezvous = rendezvous_for(config, find_store(config)).next_round();
  std::string lines;
  for (int local_rank = 0; local_rank < spec.job.local_world_size; ++local_rank) {
    Worker worker;
    worker.local_rank = worker.rank = local_rank;
    lines += shell_line(inherited_environment(),
                        worker_environment(spec.inherited, spec.job, group, worker),
                        worker_command(spec.command, local_rank));
  }
  return print(lines);
}

int launch(const LaunchConfig& config, SignalMailbox& signals) {
  AgentSpec spec = describe_agent(config);
  if (!config.result_json.empty()) check_result_file(config.result_json);
  const std::string store_program = find_store(config);
  StaticRendezvous rendezvous = rendezvous_for(config, store_program);
  spec.folder = RunFolder::create(config.log_dir, spec.job.run_id, config.logs.wants_files());
  const std::unique_ptr<const RunFolder, void (*)(const RunFolder*)> cleanup(
      &spec.folder, [](const RunFolder* folder) { folder->remove_if_private(); });
  if (config.logs.wants_files()) say("logs of this run: " + spec.folder.path());
  if (spec.job.omp_num_threads > 0) {
    say(
        fmt::format("OMP_NUM_THREADS={} for each of {} workers, by the CPUs there are; set it to "
                    "choose another number",
                    spec.job.omp_num_threads, spec.job.local_world_size));
  }
  return run_guarded(signals, [&](int launcher_pipe) {
    return guarded(
        [&] { return run_agent(config, spec, rendezvous, store_program, signals, launcher_pipe); });
  });
}

}  // namespace

int guarded_main(int argc, const char* const* argv, SignalMailbox& signals) noexcept {
  return guarded([&] {
    open_standard_streams();
    const LaunchConfig config = parse_launch_args(argc, argv, inherited_environment());
    for (const auto& hint : config.hints) say(hint);
    signals.handle(config.stop_signals);
    switch (config.action) {
      case LaunchAction::Print:
        return print(config.printed);
      case LaunchAction::DryRun:
        return dry_run(config);
      case LaunchAction::Run:
        break;
    }
    return launch(config, signals);
  });
}

}  // namespace ddp::launch
