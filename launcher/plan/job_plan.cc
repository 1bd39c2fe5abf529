#include "launcher/plan/job_plan.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "launcher/base/command.h"
#include "launcher/base/signal_names.h"
#include "launcher/plan/cpus.h"
#include "launcher/plan/gpus.h"
#include "launcher/plan/local_world_size.h"
#include "launcher/plan/numa_binding.h"
#include "launcher/plan/program.h"
#include "launcher/process/worker_spec.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

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
  if (config.virtual_local_rank || config.one_device_per_rank) {
    job.gpus = gpu_of_each_worker(
        machine, job.local_world_size,
        config.virtual_local_rank ? "virtual-local-rank" : "one-device-per-rank");
    job.amd = !machine.hip_visible_devices.empty();
  }
  return job;
}

std::vector<std::vector<int>> describe_binding(const LaunchConfig& config,
                                               const MachineView& machine, int workers) {
  if (!config.numa_binding) return {};
  return bind_to_numa(*config.numa_binding, visible_gpus(machine), workers,
                      {machine.root, cpus_of_this_thread()});
}

}  // namespace

AgentSpec describe_agent(const LaunchConfig& config) {
  MachineView machine = MachineView::of_this_process();
  AgentSpec spec;
  spec.inherited = inherited_environment();
  if (!config.devices.empty()) {
    machine.cuda_visible_devices = config.devices;
    spec.inherited[kCudaVisibleDevices] = config.devices;
    if (!machine.hip_visible_devices.empty()) {
      machine.hip_visible_devices = config.devices;
      spec.inherited[kHipVisibleDevices] = config.devices;
    }
  }
  spec.job = describe_job(config, machine, spec.inherited);
  spec.command = resolve_program(config, ProgramPlaces::of_this_process());
  spec.grace = config.shutdown_timeout;
  spec.cpus = describe_binding(config, machine, spec.job.local_world_size);
  spec.restarts = config.restarts;
  spec.hangs = config.hangs;
  spec.logs = config.logs;
  spec.host = host_name();
  return spec;
}

Worker plan_worker(const AgentSpec& spec, const WorkerGroup& group, int local_rank) {
  Worker worker;
  worker.local_rank = local_rank;
  worker.rank = group.rendezvous.group_rank * spec.job.local_world_size + local_rank;
  worker.error_file = spec.folder.error_file(group.restart_count, local_rank);
  worker.heartbeat_file = spec.folder.heartbeat_file(group.restart_count, local_rank);
  return worker;
}

WorkerSpec describe_worker(const AgentSpec& spec, const WorkerGroup& group, const Worker& worker) {
  WorkerSpec plan;
  plan.local_rank = worker.local_rank;
  plan.command = worker_command(spec.command, worker.local_rank);
  plan.environment = worker_environment(spec.inherited, spec.job, group, worker);
  plan.inherits_stdin = worker.rank == 0;  // several readers would tear the input apart
  plan.heartbeat_file = worker.heartbeat_file;
  if (!spec.cpus.empty()) plan.cpus = spec.cpus.at(static_cast<std::size_t>(worker.local_rank));
  plan.streams =
      plan_streams(spec.logs, {{spec.job.role, spec.host, worker.local_rank, worker.rank},
                               spec.folder.worker_folder(group.restart_count, worker.local_rank),
                               spec.folder.attempt_folder(group.restart_count)});
  // Python would keep output for a pipe back until its buffer is full.
  if (plan.streams.out.mode == StreamMode::Pump)
    plan.environment.try_emplace(kPythonUnbuffered, "1");
  return plan;
}

}  // namespace ddp::launch
