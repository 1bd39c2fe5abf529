// The contract between ddp-run and the programs it starts; the only launcher header that trainer
// may include.
#pragma once

namespace ddp::launch {

// Environment of each worker, as torchrun sets it.
inline constexpr const char* kRank = "RANK";
inline constexpr const char* kLocalRank = "LOCAL_RANK";
inline constexpr const char* kWorldSize = "WORLD_SIZE";
inline constexpr const char* kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr const char* kGroupRank = "GROUP_RANK";
inline constexpr const char* kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr const char* kRoleName = "ROLE_NAME";
inline constexpr const char* kRoleRank = "ROLE_RANK";
inline constexpr const char* kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr const char* kMasterAddr = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
inline constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr const char* kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
/// "True": ddp-run hosts the store at MASTER_ADDR:MASTER_PORT, all workers are clients. "False":
/// rank 0 hosts it.
inline constexpr const char* kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr const char* kErrorFile = "TORCHELASTIC_ERROR_FILE";
inline constexpr const char* kSignalsToHandle = "TORCHELASTIC_SIGNALS_TO_HANDLE";

/// The epoch of the worker's round: greater than that of any earlier round of the job, whichever
/// node hosted it (TORCHELASTIC_RESTART_COUNT may repeat if the host is lost). A store of results
/// can reject a writer with a smaller one of the same kRoundJob. Starts over when all nodes of the
/// job are restarted.
inline constexpr const char* kRoundEpoch = "DDP_ROUND_EPOCH";
/// A random id common to all rounds of a job until all of its nodes are restarted: only epochs with
/// the same id can be compared.
inline constexpr const char* kRoundJob = "DDP_ROUND_JOB";
/// "1": the user asked for a worker per GPU (--nproc_per_node=gpu), not for a number of them.
inline constexpr const char* kWorkerPerGpu = "DDP_WORKER_PER_GPU";
/// A file that a worker may rewrite to report progress; see launcher/README.md.
inline constexpr const char* kHeartbeatFile = "DDP_HEARTBEAT_FILE";
/// In a heartbeat: every rank of this program writes them from its start.
inline constexpr const char* kEveryRankWord = "ranks=all";
/// Seconds from a stop signal to SIGKILL (--shutdown-timeout), such as 30 or 2.5.
inline constexpr const char* kShutdownTimeout = "DDP_SHUTDOWN_TIMEOUT";
/// A folder in memory for copies of a worker's state. It survives restarts of the group and is
/// removed with the job. Unset if /dev/shm is not writable.
inline constexpr const char* kShmDir = "DDP_SHM_DIR";
/// In that folder: metrics as Prometheus text, which a worker may replace whenever it has new ones.
/// ddp-run's /metrics includes them.
inline constexpr const char* kMetricsFile = "metrics.prom";
/// After a restart: {"rank":1,"cause":"SIGKILL","time":1732170000.123,"attempt":0}, the root cause
/// of the previous round. cause: a signal, "exit code 3" or "hang"; time: Unix seconds when ddp-run
/// saw it; attempt: TORCHELASTIC_RESTART_COUNT of that round; rank: -1 if no worker was the cause.
/// Unset in the first round.
inline constexpr const char* kLastFailure = "DDP_LAST_FAILURE";

/// A warm spare (ddp-run --warm-spares): the descriptor of a socket (AF_UNIX, SOCK_SEQPACKET) over
/// which a process that was started early becomes a worker. Its environment lacks what only a round
/// determines (RANK, WORLD_SIZE, MASTER_PORT, ...) and its standard streams are /dev/null. When it
/// has loaded what it can, it sends one message of any length and waits for one of at most
/// kLongestHandover bytes: variables to set, each "NAME=VALUE" and a zero byte, with three
/// descriptors (SCM_RIGHTS) to become 0, 1 and 2. End of file: it is not needed and exits with 0.
/// Only programs of which every worker of this node has put the word kSparesWord into a heartbeat
/// are started early. See launcher/README.md.
inline constexpr const char* kSpareFd = "DDP_SPARE_FD";
inline constexpr const char* kSparesWord = "spares=1";
inline constexpr int kLongestHandover = 64 << 10;

// Also set for each worker unless the user has.
inline constexpr const char* kNcclAsyncErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr const char* kOmpNumThreads = "OMP_NUM_THREADS";
inline constexpr const char* kPythonUnbuffered = "PYTHONUNBUFFERED";
inline constexpr const char* kCudaVisibleDevices = "CUDA_VISIBLE_DEVICES";
/// The same for AMD GPUs, where it takes precedence; set for workers only if the user has set it.
inline constexpr const char* kHipVisibleDevices = "HIP_VISIBLE_DEVICES";

/// A folder in place of "/" when either program looks for GPUs' files in /dev and /proc. For tests
/// on fake GPUs (scripts/fake_gpu.sh).
inline constexpr const char* kDeviceRoot = "DDP_DEVICE_ROOT";

/// "1" in ddp-run's environment: it serves the workers' timers, as torchrun does, through a named
/// pipe.
inline constexpr const char* kEnableFileTimer = "TORCHELASTIC_ENABLE_FILE_TIMER";
inline constexpr const char* kTimerFile = "TORCHELASTIC_TIMER_FILE";
/// "1" in ddp-run's environment: rank 0 hosts the store, as in torchrun.
inline constexpr const char* kDisableShareStore = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";

// Exit codes of both programs; a worker killed by a signal yields 128 + its number.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
/// trainer as a worker: stopped early, state saved, restart it later (EX_TEMPFAIL of sysexits.h).
inline constexpr int kExitPreempted = 75;
/// trainer as a worker: it failed, and would fail the same way if restarted.
inline constexpr int kExitFinal = 76;
inline constexpr int kExitHang = 124;           // ddp-run: a worker hung
inline constexpr int kExitNotExecutable = 126;  // ddp-run: the program cannot be executed
inline constexpr int kExitNotFound = 127;       // ddp-run: the program was not found
inline constexpr int kExitSignalBase = 128;     // + the signal's number

/// The meaning of an exit code, as worded in help and READMEs. nullptr: never from that program.
struct ExitCodeMeaning {
  int code;
  const char* of_ddp_run;
  const char* of_trainer;
};
inline constexpr ExitCodeMeaning kExitCodeMeanings[] = {
    {kExitDone, "all workers succeeded", "done, or nothing left to do"},
    {kExitFailed, "system error, e.g. out of memory or processes", "the run failed"},
    {kExitUsage, "usage error", "usage or configuration error"},
    {kExitPreempted, "preempted: the workers saved their state and want to be restarted later",
     "stopped by a signal, state saved; rerun the same command to continue"},
    {kExitFinal, "a worker failed permanently: it would fail again",
     "the run failed and would fail again; ddp-run does not restart it"},
    {kExitHang, "a worker hung and no restarts were left", nullptr},
    {kExitNotExecutable, "PROGRAM cannot be executed", nullptr},
    {kExitNotFound, "PROGRAM was not found", nullptr},
    {kExitSignalBase, "signal N killed the job, or the worker that failed first",
     "killed by signal N, nothing saved"},
};

}  // namespace ddp::launch
