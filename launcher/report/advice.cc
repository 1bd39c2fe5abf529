#include "launcher/report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

struct Symptom {
  const char* words;  // as torch, Python or the C library write them
  const char* advice;
};

// The first match counts, so the more specific ones come first.
constexpr Symptom kSymptoms[] = {
    {"CUDA out of memory",
     "the GPU's memory is full: reduce the batch size per process and accumulate more, use bf16, "
     "or recompute activations; nvidia-smi lists the GPU's other processes"},
    {"DefaultCPUAllocator: can't allocate memory",
     "the machine's memory is full: use fewer workers, a smaller batch, or fewer DataLoader "
     "workers"},
    {"OutOfMemoryError", "memory is full: reduce the batch size per process"},
    {"DataLoader worker (pid",
     "a DataLoader process was killed, often because /dev/shm (docker run --shm-size=8g or "
     "--ipc=host) or memory is full; try num_workers=0"},
    {"invalid device ordinal",
     "there are more workers than GPUs: --nproc_per_node=gpu counts them; CUDA_VISIBLE_DEVICES may "
     "hide some"},
    {"Duplicate GPU detected",
     "two ranks use the same GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), or "
     "--one-device-per-rank"},
    {"no NVIDIA driver on your system",
     "this process sees no GPU driver: run nvidia-smi here; in a container, pass the GPUs through "
     "(docker run --gpus all)"},
    {"CUDA driver version is insufficient",
     "the driver is too old for this torch: update it, or install a torch for an older CUDA"},
    {"device-side assert triggered",
     "a kernel got an index out of range, often a label or token beyond the vocabulary: rerun with "
     "CUDA_LAUNCH_BLOCKING=1 to see the line"},
    {"Watchdog caught collective operation timeout",
     "a rank did not join a collective: the missing rank is the cause, not this one. Do all ranks "
     "have the same number of batches and take the same branches? --hang-timeout=S dumps all "
     "stacks"},
    {"unhandled system error",
     "NCCL could not set up its transport: run with NCCL_DEBUG=INFO; often /dev/shm is too small "
     "or NCCL_SOCKET_IFNAME is the wrong interface"},
    {"ncclUnhandledCudaError", "NCCL hit a CUDA error: run with NCCL_DEBUG=INFO"},
    {"Expected to have finished reduction in the prior iteration",
     "some parameters got no gradient: DistributedDataParallel(find_unused_parameters=True), or "
     "let every parameter take part in the loss"},
    {"ddress already in use",
     "another process uses the port: omit --master-port, and ddp-run picks a free one; ss -ltnp "
     "shows the process"},
    {"EADDRINUSE",
     "another process uses the port: omit --master-port, and ddp-run picks a free one; ss -ltnp "
     "shows the process"},
    {"No space left on device",
     "a disk or /dev/shm is full: df -h; logs are bounded by --log-max-size"},
    {"Too many open files", "raise the limit: ulimit -n 65536"},
    {"error while loading shared libraries",
     "a library is missing, damaged or too old: reinstall its package, or add its folder to "
     "LD_LIBRARY_PATH; ldd PROGRAM shows which are missing"},
    {"ModuleNotFoundError",
     "the module is not installed in the Python that ran the workers: ddp-run --dry-run shows "
     "which one; activate the environment, or set PYTHON_EXEC"},
    {"are required: --local",
     "the script expects --local_rank as an argument, as torch.distributed.launch passed it: read "
     "os.environ['LOCAL_RANK'] instead, or add --local_rank='${local_rank}' after the script"},
    {"size mismatch for",
     "the checkpoint is of a model of another size: use its configuration or another folder"},
    {"Connection closed by peer",
     "this rank lost its connection to one that failed first: see the other ranks' logs"},
    {"Connection reset by peer",
     "this rank lost its connection to one that failed first: see the other ranks' logs"},
    {"connectFullMesh failed",
     "Gloo could not reach a rank at the address in the message: if it is 127.0.1.1 (/etc/hosts) "
     "or on another network, set GLOO_SOCKET_IFNAME to each node's interface (ip -br addr)"},
    {"FileNotFoundError",
     "paths are relative to the folder in which ddp-run was started; on several nodes the file "
     "must exist on each"},
};

std::string about_words(const std::string& words) {
  const auto* const found = std::ranges::find_if(kSymptoms, [&](const Symptom& symptom) {
    return words.find(symptom.words) != std::string::npos;
  });
  return found == std::end(kSymptoms) ? "" : found->advice;
}

std::string about_error(const PythonError& error) {
  const std::string about = about_words(error.text);
  return about.empty() ? about_words(error.causes) : about;
}

std::string about_hang(const ProcessFailure& failure) {
  const std::string stacks =
      failure.stacks.empty() ? "" : "; its stacks show where: " + failure.stacks;
  if (!failure.progress.waiting.empty()) {
    return "it waited for its peers in " + failure.progress.waiting +
           ": find the rank that never entered it" + stacks;
  }
  return "it made no progress: look for a lock, a slow disk or missing data" + stacks +
         "; if it was only slow, raise --hang-timeout";
}

constexpr const char* kMoreCpuTime =
    "raise the CPU time limit: ulimit -t in the shell that starts ddp-run, or the scheduler's";

std::string about_signal(int signal, const std::string& cause) {
  switch (signal) {
    case SIGKILL:
      if (cause.starts_with("out of memory"))
        return "use fewer workers, a smaller batch, or more memory";
      if (cause.starts_with("CPU time limit")) return kMoreCpuTime;
      if (!cause.empty())
        return "not the kernel: a scheduler, a user or another program killed it; check their "
               "logs";
      return "if memory ran out (dmesg, the container's limit): use fewer workers, a smaller "
             "batch, or "
             "more memory";
    case SIGTERM:
      return "a scheduler or a user stopped the job, which --max-restarts does not restart; rerun "
             "the same "
             "command";
    case SIGXCPU:
      return kMoreCpuTime;
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return "for a stack trace: PYTHONFAULTHANDLER=1 for Python, ulimit -c unlimited and gdb for "
             "others";
    default:
      return "";
  }
}

std::string about_code(int code, const std::string& cause) {
  switch (code) {
    case kExitUsage:  // by convention of most programs
      return "its command line or configuration was rejected: see its last lines";
    case kExitNotFound:
    case kExitNotExecutable:
      return "ddp-run --dry-run shows the command and its PATH";
    default:
      return code > kExitSignalBase ? about_signal(code - kExitSignalBase, cause) : "";
  }
}

std::string about_end(const ProcessFailure& failure, WorkerProgram program) {
  if (!failure.hang.empty()) return about_hang(failure);
  switch (meaning_of(program, failure.exit)) {
    case ExitMeaning::kPreempted:
      return "the state is saved: rerun the same command to continue";
    case ExitMeaning::kFinal:
      return "it was not restarted, as it would fail again: fix the error in its last lines";
    case ExitMeaning::kUsage:
    case ExitMeaning::kNone:
      break;
  }
  return failure.exit.signal != 0 ? about_signal(failure.exit.signal, failure.cause)
                                  : about_code(failure.exit.code, failure.cause);
}

}  // namespace

std::vector<std::string> advice_for(const ProcessFailure& failure, const std::string& words,
                                    const std::optional<PythonError>& error,
                                    WorkerProgram program) {
  std::string about = error ? about_error(*error) : "";
  const bool explained = error && failure.exit.signal == 0;  // a signal came from elsewhere
  if (about.empty() && !explained) about = about_words(words);
  std::vector<std::string> lines{about, about_end(failure, program)};
  std::erase(lines, "");
  return lines;
}

namespace {

std::string where_to_look(const ProcessFailure& failure, const Traces& traces) {
  if (traces.error) return look_at(*traces.error);
  if (failure.exit.signal != 0) return "its last lines show what it was doing when it was killed";
  const bool silent = trimmed(traces.words).empty();
  if (failure.exit.code == 0) {  // not recorded
    if (!silent) return "its last lines are above";
    return traces.logs.empty() ? "the workers' output was not kept" : "the workers wrote nothing";
  }
  return fmt::format("exit code {0} is the program's own, {1}: look for sys.exit({0}) or exit({0})",
                     failure.exit.code, silent ? "with no output" : "see its last lines");
}

std::string where_output_is(const Traces& traces) {
  if (!traces.elsewhere.empty())
    return fmt::format("its files are on {}: run ddp-run --explain there", traces.elsewhere);
  if (!traces.output.empty()) return "full output: " + traces.output;
  const bool silent = trimmed(traces.words).empty();
  if (silent && !traces.logs.empty()) return "its log files are empty: " + traces.logs;
  return "to keep every rank's output, rerun with --log-dir=logs --tee=3";
}

std::string about_the_rest(const ProcessFailure& failure, const Traces& traces) {
  const std::string& host = failure.host;
  return fmt::format(
      "no worker failed on its own; check dmesg and the free memory, disk and network of {}",
      traces.elsewhere.empty() || host.empty() ? "this machine" : host);
}

}  // namespace

std::string look_at(const PythonError& error) {
  return fmt::format("look at {}, which led to {}", error.place, error.what);
}

std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces) {
  if (!failure.is_worker()) return {about_the_rest(failure, traces)};
  std::vector<std::string> steps{where_to_look(failure, traces), where_output_is(traces)};
  if (traces.world_size > 1) {
    steps.push_back(
        fmt::format("try {}--nproc_per_node=1: if that fails too, debug it there; if not, look for "
                    "what only some ranks do",
                    traces.several_nodes ? "--standalone " : ""));
  }
  return steps;
}

}  // namespace ddp::launch
