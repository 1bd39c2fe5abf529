#include "trainer/app/train_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/exit_report.h"
#include "trainer/app/out_of_memory.h"
#include "trainer/app/plan/strategy_choice.h"
#include "trainer/app/resume_point.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/config/keys/idle_keys.h"
#include "trainer/data/data_source.h"
#include "trainer/metrics/text.h"
#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/optim/numerics.h"
#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_share.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/mesh/nccl_watch.h"
#include "trainer/parallel/mesh/peer_watch.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/run/trainer.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/temporary_folder.h"
#include "trainer/runtime/log/log.h"
#include "trainer/runtime/process/start_time.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/resume_check.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

/// All ranks work in rank 0's folder; on another node it may not be there yet.
void work_in(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (::chdir(folder.c_str()) != 0) {
    throw RunError(
        fmt::format("hydra.job.chdir: cannot change to {}: {}", folder, std::strerror(errno)));
  }
}

std::unique_ptr<Task> open_task(const Config& config, const DevicePlan& plan,
                                const std::optional<SnapshotMeta>& meta) {
  try {
    return make_task(config, meta ? &meta->task : nullptr);
  } catch (const UserError& error) {
    const std::string text = error.what();
    if (!meta || text.find("is not in the vocabulary") == std::string::npos) throw;
    throw UserError(fmt::format(
        "{}, which is that of the snapshot {}; to train on other data, or more of it (its run had "
        "data_config.truncate={}), set trainer_config.snapshot_path to a file in a new folder",
        text.substr(0, text.find("; use only")), config.trainer.snapshot_path,
        config_from_json(meta->config_json).data.truncate));
  } catch (const std::bad_alloc&) {
    hold_to_share({}, plan);  // the words need memory, too
    throw FinalError(fmt::format(
        "out of memory while reading data_config.path={}{}: text is held in memory as a whole; "
        "write "
        "its tokens once with trainer tokenize and train on their folder, which is mapped",
        config.data.path, memory_limit_note(config.distributed, plan.device)));
  }
}

/// As distributed_config says. Throws UserError when the ranks cannot be divided like that.
MeshShape mesh_shape(const DistributedConfig& config, int world_size) {
  const int64_t model = config.pipeline * config.tensor * config.expert;
  if (world_size % model != 0) {
    const std::string keys = config.expert > 1      ? fmt::format("expert={}", config.expert)
                             : config.pipeline == 1 ? fmt::format("tensor={}", config.tensor)
                             : config.tensor == 1   ? fmt::format("pipeline={}", config.pipeline)
                                                    : fmt::format("pipeline={} x tensor={}",
                                                                  config.pipeline, config.tensor);
    throw UserError(fmt::format(
        "distributed_config.{} is {} ranks for each copy of the model, and {} {} not a multiple "
        "of it; start a multiple with ddp-run --nproc_per_node=N",
        keys, model, counted(world_size, "rank"), world_size == 1 ? "is" : "are"));
  }
  return {static_cast<int>(world_size / model), static_cast<int>(config.pipeline),
          static_cast<int>(config.tensor), static_cast<int>(config.expert)};
}

void warn_of_far_neighbours(const DistributedConfig& config, const DistEnv& env, Log& log) {
  const bool experts = config.expert > 1;
  const int64_t sharing = experts ? config.expert : config.tensor;
  if (!env.is_main() || env.single_node() || env.local_world_size % sharing == 0) return;
  log.warning(fmt::format(
      "distributed_config.{}={}: ranks that share {} are on different machines, and wait for each "
      "other four times per layer; use a divisor of the {} ranks per machine",
      experts ? "expert" : "tensor", sharing, experts ? "experts" : "layers",
      env.local_world_size));
}

/// From here on the run has a strategy, which its snapshots hold.
void resolve_strategy(Config& config, const Task& task, const DevicePlan& plan, const DistEnv& env,
                      const std::optional<SnapshotMeta>& meta, ProcessGroup& group, Log& log) {
  if (config.distributed.strategy != Strategy::kAuto) return;
  const StrategyChoice choice = choose_strategy(config, task, plan, env, meta, group);
  config.distributed.strategy = choice.strategy;
  log.setup(fmt::format("distributed_config.strategy=auto: {}: {}", name_of(choice.strategy),
                        choice.why));
}

/// From here on the run has a precision on CPUs, which its snapshots hold.
void resolve_amp(TrainerConfig& config, const DevicePlan& plan,
                 const std::optional<SnapshotMeta>& meta, ProcessGroup& group, Log& log) {
  if (plan.device.is_cuda() || !config.use_amp) return;
  std::optional<Config> before;
  if (meta) before = config_from_json(meta->config_json);
  const std::string warning = settle_amp_among(group, config, before ? &before->trainer : nullptr);
  if (!warning.empty()) log.warning(warning);
}

struct SnapshotPlace {
  SnapshotFolder& folder;
  RemoteSnapshots* remote;  ///< On rank 0, of a run with remote snapshots.
  bool sharded;             ///< Each rank writes a part.
};

/// All of it that a model is needed for.
FitResult train_task(const Config& config, const DevicePlan& plan, ProcessGroup& group,
                     const SnapshotPlace& place, RunMonitor& monitor, Log& log, PeerWatch& peers,
                     ResumePoint resume, Task& task, Mesh& mesh) {
  Trainer trainer(config, plan, mesh, task, resume.meta,
                  resume.snapshot ? &*resume.snapshot : nullptr);
  const std::string resumed_from = resume.snapshot ? resume.snapshot->path : "";
  resume.snapshot.reset();  // or a file that is replaced later would keep its place on the disk
  monitor.started("model");
  TrainingRun training(config, group, trainer, place.folder, place.remote, monitor, log,
                       resumed_from, place.sharded);
  const PeerWatch::FinishFirst saves(peers, [&training] { training.finish_writing(); });
  return training.fit();
}

/// In a catch block: throws what is in flight on, memory that is lacking as an error of ours.
[[noreturn]] void rethrow(const Config& config, const DevicePlan& plan, const ProcessGroup& group,
                          const TaskCost& task, const std::exception& error) {
  if (!is_out_of_memory(error)) throw;
  hold_to_share({}, plan);  // the words need memory, too
  const ComputePlace place{plan.device.is_cuda(), group.size()};
  throw FinalError(
      out_of_memory_text(config, task, place, place.cuda ? plan.device.index() : 0, error));
}

void check_cuda_graphs(const TrainerConfig& config, const DevicePlan& plan) {
  if (config.cuda_graphs != AutoSwitch::kTrue || plan.device.is_cuda()) return;
  throw UserError(
      "trainer_config.cuda_graphs=true needs a GPU, and this run trains on the CPU; use "
      "cuda_graphs=auto");
}

/// trainer's own kernels are for bfloat16, and for a quantized base in any precision, where Adam's
/// update and the gradient norm use them as well. Without them torch's operations serve.
void load_gpu_kernels(const Config& config, const DevicePlan& plan, Log& log) {
  const bool in_bfloat16 =
      config.trainer.use_amp && config.trainer.amp_dtype == AmpDtype::kBFloat16;
  const bool wanted = plan.device.is_cuda() && config.trainer.fused_gpu_kernels &&
                      (in_bfloat16 || config.quantize.enabled());
  if (!wanted) return gpu::leave_out_kernels();
  if (const std::string why = gpu::load_kernels(); !why.empty())
    log.warning("trainer_config.fused_gpu_kernels: torch's slower operations are used: " + why);
}

/// `loading` is reset once the data is there.
FitResult train_in_group(Config& config, const DevicePlan& plan, const DistEnv& env,
                         ProcessGroup& group, Log& log, PeerWatch& peers, RunMonitor& monitor,
                         std::atomic<bool>& loading) {
  const bool several_nodes = !env.single_node();
  const bool remote_path = is_remote(config.trainer.snapshot_path);
  monitor.starting(remote_path);  // nobody knows how long a download takes
  SnapshotFolder folder(local_snapshot_path(config.trainer), config.trainer.save_total_limit, log);
  std::unique_ptr<RemoteSnapshots> remote;
  if (group.is_main() && remote_path) {
    remote = std::make_unique<RemoteSnapshots>(config.trainer.snapshot_path, folder, log);
    remote->fetch_newest();
  }
  ResumePoint resume = find_resume_point(folder, several_nodes && !remote_path, group, log);
  if (remote_path) monitor.starting(false);
  if (config.task == TaskKind::kCausalLm) {
    if (const auto note = large_text_note(config.data); !note.empty()) log.info(note);
  }
  if (resume.meta) {
    check_snapshot_task(snapshot_task(*resume.meta), config.task, config.trainer.snapshot_path,
                        "set trainer_config.snapshot_path to a new file to start from scratch");
  }
  hold_to_share(config.distributed, plan);
  resolve_amp(config.trainer, plan, resume.meta, group, log);
  check_cuda_graphs(config.trainer, plan);
  load_gpu_kernels(config, plan, log);
  warn_of_far_neighbours(config.distributed, env, log);
  Mesh mesh(group, mesh_shape(config.distributed, group.size()), env, config.distributed, plan);
  std::optional<AbortOnFailure> abort;  // when the NCCL watch below has ended
  if (mesh.divides_model()) abort.emplace(group);
  const NcclWatch nccl(mesh, config.distributed.timeout_s, [&log](const std::string& why) {
    log.flush();
    throw RunError(why);  // of this thread: ends the process
  });
  const auto task = open_task(config, plan, resume.meta);
  try {
    if (mesh.divides_model()) task->divide(mesh);
    const std::string& samples = task->training().fingerprint();
    if (group.broadcast_text(samples) != samples) {
      throw RunError(
          fmt::format("{}: rank {} reads other data than rank 0; give all nodes the same files",
                      config.data.path, group.rank()));
    }
    loading = false;
    if (resume.meta) {
      for (const auto& line : check_resume(*resume.meta, config, *task)) log.info(line);
    }
    resolve_strategy(config, *task, plan, env, resume.meta, group, log);
    // The other ranks can read what rank 0 reads. On one machine's CPUs sending it takes longer,
    // and of a divided state each rank needs a part. Between GPUs a broadcast is faster than
    // comparing.
    const bool divided =
        mesh.divides_model() || (divides_state(config.distributed.strategy) && group.size() > 1);
    if (resume.meta && (divided || (!several_nodes && !plan.device.is_cuda())))
      resume.snapshot = open_as_rank_zero(std::move(resume.snapshot), group);
    if (group.is_main())
      folder.begin_run(config_to_json(config), samples, RoundFence::of_environment());
    const bool sharded = saves_shards(config.trainer, divided, folder, group, log);
    if (sharded) follow_rank_zero(folder, group);
    if (sharded && several_nodes) leave_out_copies(config.trainer, env, log);
    monitor.started("snapshot and data");
    return train_task(config, plan, group, {folder, remote.get(), sharded}, monitor, log, peers,
                      std::move(resume), *task, mesh);
  } catch (const std::exception& error) {
    rethrow(config, plan, group, *task, error);
  }
}

/// One rank has nothing to divide. Under a launcher it may be what is left of several.
void check_strategy(const DistributedConfig& config, const DistEnv& env, Log& log) {
  if (!divides_state(config.strategy) || env.world_size > 1) return;
  const auto name = name_of(config.strategy);
  if (!env.launched) {
    throw UserError(fmt::format(
        "distributed_config.strategy={} divides the training state between ranks, and this is one "
        "process; start it with ddp-run --nproc_per_node=N, or remove strategy",
        name));
  }
  log.info(
      fmt::format("distributed_config.strategy={}: one rank has nothing to divide; it trains "
                  "as with ddp",
                  name));
}

/// There is no other memory to move the state to.
void check_offload(const DistributedConfig& config, const DevicePlan& plan) {
  if (config.offload == Offload::kNone || plan.device.is_cuda()) return;
  throw UserError(
      "distributed_config.offload=optimizer moves state from a GPU to host memory, and this run "
      "computes on the CPU; remove offload, or divide the state between ranks with "
      "distributed_config.strategy=zero1");
}

Console console_of(ProgressStyle style) {
  const char* terminal = std::getenv("TERM");
  const bool redraws = terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
  switch (style) {
    case ProgressStyle::kOff:
      return Console::kQuiet;
    case ProgressStyle::kAuto:
      return redraws && ::isatty(STDOUT_FILENO) == 1 ? Console::kLive : Console::kPlain;
    case ProgressStyle::kPlain:
      break;
  }
  return Console::kPlain;
}

/// Creates the folders of the run. Returns what went wrong, or "".
std::string prepare_folders(const RunConfig& run) {
  try {
    prepare_snapshot_folder(local_snapshot_path(run.config.trainer));
    write_run_folder(run);
    return "";
  } catch (const UserError& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  }
}

/// Ends the process as the signal would have done, had it not been caught, or as preempted.
/// `silent_rank`: this one for its device.
[[noreturn]] void leave_peers(int silent_rank, ProcessGroup& group, Log& log) {
  const int signal = StopSignal::pending();
  const std::string silent =
      silent_rank == group.rank()
          ? "its GPU, which has made no progress since: a kernel may never end"
          : fmt::format("rank {}, which gives no sign of life", silent_rank);
  log.warning(fmt::format(
      "rank {}: stopped by signal {} while it waited for {}: nothing is saved beyond the last "
      "snapshot",
      group.rank(), signal, silent));
  log.flush();
  group.abort();  // a kernel that spins may hold up the end of the process
  std::_Exit(signal == SIGUSR1 ? launch::kExitPreempted : launch::kExitSignalBase + signal);
}

/// Ends the process as after a step with a snapshot: no state is lost.
[[noreturn]] void stop_loading(int signal, Log& log) {
  log.info(fmt::format("Stopped by signal {} before the first step", signal));
  log.flush();
  TemporaryFolder::remove_all();
  std::_Exit(launch::kExitPreempted);
}

/// A build without CUDA trains on the CPU of any machine; a GPU that CUDA does not show is a fault,
/// found only hours later if the CPU served instead.
void check_reason_for_cpu(const DevicePlan& plan, Log& log) {
  if (plan.why_cpu.empty()) return;
  if (loaded_cuda_module() != nullptr) {
    throw UserError(
        fmt::format("this machine has an NVIDIA GPU, but CUDA shows none: {}; check nvidia-smi and "
                    "CUDA_VISIBLE_DEVICES, or set trainer_config.device=cpu to train on the CPU",
                    plan.why_cpu));
  }
  log.warning("Training on the CPU, because " + plan.why_cpu);
}

/// Logs the keys that have no effect.
void warn_of_idle(const RunConfig& run, Log& log) {
  if (!run.warning.empty()) log.warning(run.warning);
  for (const auto& line : idle_keys(run.config, run.given)) log.warning(line);
}

}  // namespace

FitResult train_job(RunConfig run, const DistEnv& env, OnFailure on_failure,
                    const StorePart& store) {
  Config& config = run.config;
  const bool alone = on_failure == OnFailure::kEndProcess;
  StartTimes start(alone ? process_start_unix_seconds() : unix_seconds());
  start.end_of("program");
  std::string trouble = env.is_main() ? prepare_folders(run) : "";
  if (!trouble.empty() && alone) throw UserError(trouble);
  const bool writes = env.is_main() && trouble.empty();
  Log log(env.is_main(), writes ? config.hydra.log_file() : "",
          config.hydra.verbose.covers("trainer") ? LogLevel::kDebug : LogLevel::kInfo,
          console_of(config.logging.progress));
  log.debug("Configuration:\n" + config_to_yaml(config));
  if (env.is_main()) warn_of_idle(run, log);
  check_strategy(config.distributed, env, log);
  const DevicePlan plan = plan_device(config.trainer.device, config.distributed, env);
  check_reason_for_cpu(plan, log);
  check_offload(config.distributed, plan);
  apply_numerics(config.trainer, plan.device);
  RunMonitor monitor(config, env.rank, env.world_size, plan.device.is_cuda(), start,
                     CollectiveWait::current);
  for (const auto& line : monitor.faults().descriptions()) log.warning(line);
  if (!monitor.faults().empty()) log.flush();  // the first may kill at once
  monitor.joining();
  ProcessGroup group(env, config.distributed, plan, store);
  // Only now: a rank that still waits for the others ends at the first signal.
  std::atomic<bool> loading = alone && group.size() == 1;  // ranks agree after a step
  const StopSignal stop_signal([&log, &loading](int signal) {
    if (loading) stop_loading(signal, log);
    log.info(fmt::format(
        "Signal {}: the run stops after the current step and saves; {} ends it at once, unsaved",
        signal, signal == SIGINT ? "Ctrl-C again" : "another signal"));
  });
  try {
    PeerWatch peers(group, env, [&log, &group](int silent) { leave_peers(silent, group, log); });
    if (!peers.on() && env.world_size > 1)
      log.debug("The ranks cannot ask each other for signs of life");
    trouble = group.broadcast_text(trouble);
    if (!trouble.empty()) throw UserError(trouble);
    // A time stamp in the folder's name: rank 0's counts.
    config.hydra.run_dir = group.broadcast_text(config.hydra.run_dir);
    if (config.hydra.job_chdir) work_in(config.hydra.run_dir);
    monitor.started("group");
    auto result = train_in_group(config, plan, env, group, log, peers, monitor, loading);
    if (alone) ignore_preemption();
    return result;
  } catch (...) {
    monitor.withdraw_promise();
    if (on_failure == OnFailure::kThrow) throw;
    log.flush();
    end_with_current_exception();
  }
}

}  // namespace ddp::train
