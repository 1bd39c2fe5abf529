// (job, group, worker) -> the environment that torchrun's workers expect. Pure.
#pragma once

#include <string>

#include "launcher/base/command.h"
#include "launcher/base/worker.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

/// The data common to all rounds of a job.
struct JobInfo {
  std::string role = "default";
  std::string run_id;
  int local_world_size = 1;
  int max_restarts = 0;
  std::string signals_to_handle;
  bool virtual_local_rank = false;
  bool worker_per_gpu = false;
  std::vector<std::string> gpus;  // each local rank's own CUDA_VISIBLE_DEVICES; empty: all of them
  bool amd = false;               // HIP_VISIBLE_DEVICES is set as well
  int omp_num_threads = 0;        // 0: leave OMP_NUM_THREADS alone
  std::string shm_dir{};          // empty: none
  std::string timer_file{};       // empty: the workers' timers are not served
};

/// Returns a worker's environment: the inherited one with the job's own values.
Environment worker_environment(const Environment& inherited, const JobInfo& job,
                               const WorkerGroup& group, const Worker& worker);

/// Returns the environment of this worker's standby worker: without what only a round determines.
Environment standby_environment(Environment of_worker);

/// Expands ${local_rank} and $local_rank in the arguments; $${local_rank} yields the literal text.
Command worker_command(const Command& command, int local_rank);

/// "env NAME=value ... program arguments", quoted for a shell: what the worker's environment
/// changes in `inherited`, and its CPUs (taskset).
std::string shell_line(const Environment& inherited, const WorkerSpec& worker);

}  // namespace ddp::launch
