#include "launcher/plan/job_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "launcher/base/errors.h"
#include "launcher/base/random_hex.h"
#include "launcher/base/signal_names.h"
#include "launcher/plan/cpus.h"
#include "launcher/plan/gpus.h"
#include "launcher/plan/numa_binding.h"
#include "launcher/plan/program.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// A UUID of version 4.
std::string random_id() {
  const std::string hex = random_hex(16);
  return fmt::format("{:.8}-{:.4}-4{:.3}-8{:.3}-{:.12}", hex, hex.substr(8), hex.substr(12),
                     hex.substr(15), hex.substr(18));
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

// 0: leave the user's OMP_NUM_THREADS, or a single worker's default, alone.
int omp_threads(const Environment& inherited, int workers, int cpus) {
  if (workers == 1 || inherited.count(kOmpNumThreads) > 0) return 0;
  return std::max(1, cpus / workers);
}

JobInfo job_info(const LaunchConfig& config, const MachineView& machine,
                 const Environment& inherited) {
  JobInfo job;
  job.role = config.role;
  job.run_id = config.group             ? config.group->rules.run_id
               : config.rdzv_id.empty() ? random_id()
                                        : config.rdzv_id;
  job.local_world_size = local_world_size(config.nproc_per_node, machine);
  job.worker_per_gpu = config.nproc_per_node == "gpu";
  job.max_restarts = config.restarts.max_restarts;
  job.signals_to_handle = names_of(config.stop_signals);
  job.omp_num_threads = omp_threads(inherited, job.local_world_size, machine.cpus);
  job.virtual_local_rank = config.virtual_local_rank;
  if (config.virtual_local_rank || config.one_device_per_rank) {
    job.gpus = gpu_of_each_worker(
        machine, job.local_world_size,
        config.virtual_local_rank ? "virtual-local-rank" : "one-device-per-rank");
    job.amd = !machine.hip_visible_devices.empty();
  }
  return job;
}

std::vector<std::vector<int>> cpus_of_workers(const LaunchConfig& config,
                                              const MachineView& machine, int workers) {
  if (!config.numa_binding) return {};
  return bind_to_numa(*config.numa_binding, visible_gpus(machine), workers,
                      {machine.root, cpus_of_this_thread()});
}

// The trainer that was installed with this ddp-run writes heartbeats from its start, and its exit
// codes are known. Another program of that name has its own ways.
WorkerProgram program_of(const Command& command, const ProgramPlaces& places) {
  std::error_code none;
  const bool own =
      std::filesystem::equivalent(command.executable, places.own_folder + "/trainer", none);
  return own ? WorkerProgram::kTrainer : WorkerProgram::kOther;
}

}  // namespace

JobPlan plan_job(const LaunchConfig& config) {
  const MachineView machine = MachineView::of_this_process();
  JobPlan plan;
  plan.inherited = inherited_environment();
  plan.job = job_info(config, machine, plan.inherited);
  const auto places = ProgramPlaces::of_this_process();
  plan.command = resolve_program(config, places);
  plan.grace = config.shutdown_timeout;
  plan.inherited[kShutdownTimeout] =
      fmt::format("{}", std::chrono::duration<double>(plan.grace).count());
  plan.exit_grace = config.exit_grace;
  plan.stdin_rank = config.stdin_rank;
  if (!config.group && plan.stdin_rank >= plan.job.local_world_size) {
    usage_error(fmt::format("--stdin-rank={}: the job has ranks 0 to {}", plan.stdin_rank,
                            plan.job.local_world_size - 1));
  }
  plan.cpus = cpus_of_workers(config, machine, plan.job.local_world_size);
  plan.job.omp_num_threads = threads_that_fit(plan.cpus, plan.job.omp_num_threads);
  plan.restarts = config.restarts;
  plan.restarts.program = program_of(plan.command, places);
  plan.standby_workers = config.standby_workers;
  plan.elastic = config.group && !config.group->rules.fixed_ranks;
  plan.hangs = config.hangs;
  if (!config.preflight.empty()) {
    const PreflightJob job{plan.job.run_id, plan.job.local_world_size,
                           static_cast<int>(visible_gpus(machine).size())};
    plan.preflight = plan_preflight(config.preflight, job, places, plan.inherited);
  }
  const bool has_heartbeats = config.log_dir != "/dev/null";
  if (has_heartbeats && plan.restarts.program == WorkerProgram::kTrainer)
    plan.hangs.first_heartbeat = std::chrono::minutes(1);
  plan.logs = config.logs;
  plan.logs.own_stdout = can_share_stdout(STDOUT_FILENO);
  plan.host = host_name();
  return plan;
}

Worker plan_worker(const JobPlan& plan, const WorkerGroup& group, int local_rank) {
  Worker worker;
  worker.local_rank = local_rank;
  worker.rank = group.rendezvous.first_rank + local_rank;
  worker.error_file = plan.folder.error_file(group.restart_count, local_rank);
  // In memory, as a disk that blocks must not make a worker look hung.
  worker.heartbeat_file = plan.folder.heartbeat_file(group.restart_count, local_rank);
  if (!worker.heartbeat_file.empty() && !plan.job.shm_dir.empty())
    worker.heartbeat_file = fmt::format("{}/heartbeat.{}", plan.job.shm_dir, local_rank);
  return worker;
}

WorkerSpec worker_spec(const JobPlan& plan, const WorkerGroup& group, const Worker& worker) {
  WorkerSpec spec;
  spec.local_rank = worker.local_rank;
  spec.command = worker_command(plan.command, worker.local_rank);
  spec.environment = worker_environment(plan.inherited, plan.job, group, worker);
  // Several readers would split the input between them.
  spec.inherits_stdin = worker.rank == plan.stdin_rank;
  spec.heartbeat_file = worker.heartbeat_file;
  if (!plan.cpus.empty()) spec.cpus = plan.cpus.at(static_cast<std::size_t>(worker.local_rank));
  spec.streams =
      plan_streams(plan.logs, {{plan.job.role, plan.host, worker.local_rank, worker.rank},
                               plan.folder.worker_folder(group.restart_count, worker.local_rank),
                               plan.folder.attempt_folder(group.restart_count)});
  // Python would hold back output to a pipe until its buffer is full.
  if (spec.streams.out.mode == StreamMode::kPump)
    spec.environment.try_emplace(kPythonUnbuffered, "1");
  return spec;
}

WorkerSpec standby_spec(const JobPlan& plan, const WorkerGroup& group, const Worker& worker) {
  WorkerSpec spec = worker_spec(plan, group, worker);
  spec.environment = standby_environment(std::move(spec.environment));
  spec.inherits_stdin = false;
  spec.heartbeat_file.clear();
  spec.streams = {};
  return spec;
}

}  // namespace ddp::launch
