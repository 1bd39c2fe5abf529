#include "launcher/cli/other_launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// Options with the same answer.
struct ForeignOptions {
  std::string_view names;  // with dashes, separated by spaces
  const char* owner;       // nullptr: nobody's
  const char* answer;
};

constexpr const char* kPerNode = "write --nproc-per-node=N, the processes of one node";
constexpr const char* kNodes = "write --nnodes=N";
constexpr const char* kHosts = "write --hosts=HOST:N,...";
constexpr const char* kLeaveOut = "leave it out";
constexpr const char* kPlugIn = "leave it out: only accelerate launch sets that up";
constexpr const char* kSlurm =
    "give it to srun or sbatch: srun --ntasks-per-node=1 ddp-run --scheduler=slurm ...";
constexpr const char* kScript = "your script";
constexpr const char* kBehind = "write it behind the script: ddp-run ... train.py --";
constexpr const char* kGpus =
    "write --nproc-per-node=N for N GPUs; CUDA_VISIBLE_DEVICES=0,1 says which ones";
constexpr const char* kPython = "write ddp-run ... python, this option, then the script";

constexpr ForeignOptions kForeignOptions[] = {
    {"num-processes", "accelerate", kPerNode},
    {"num-machines", "accelerate", kNodes},
    {"machine-rank", "accelerate", "write --node-rank=N"},
    {"main-process-ip", "accelerate", "write --master-addr=HOST"},
    {"main-process-port", "accelerate", "write --master-port=PORT"},
    {"gpu-ids", "accelerate", "set CUDA_VISIBLE_DEVICES=LIST"},
    {"multi-gpu same-network", "accelerate", kLeaveOut},
    {"cpu use-cpu", "accelerate", "set ACCELERATE_USE_CPU=true"},
    {"mixed-precision", "accelerate", "set ACCELERATE_MIXED_PRECISION, e.g. to bf16"},
    {"num-cpu-threads-per-process", "accelerate", "set OMP_NUM_THREADS=N"},
    {"config-file use-deepspeed use-fsdp deepspeed-config-file dynamo-backend dynamo-mode "
     "zero-stage zero3-init-flag",
     "accelerate", kPlugIn},
    {"num-gpus", "deepspeed", kPerNode},
    {"num-nodes", "deepspeed", kNodes},
    {"include", "deepspeed", "write --hosts=HOST:N,... or set CUDA_VISIBLE_DEVICES=LIST"},
    {"np n npernode ppn", "mpirun", kPerNode},
    {"H host", "mpirun", kHosts},
    {"hostfile", "mpirun", "write --hosts=@FILE"},
    {"x", "mpirun", "write --export=NAME,... with --hosts; else all are passed on"},
    {"bind-to map-by", "mpirun", "write --numa-binding=node"},
    {"mca", "mpirun", "leave it and its two values out"},
    {"allow-run-as-root oversubscribe", "mpirun", kLeaveOut},
    {"N ntasks ntasks-per-node gres gpus-per-node", "srun", kSlurm},
    {"cpu-bind", "srun", "write --numa-binding=node, or give it to srun"},
    {"u", "python", "leave it out: scripts run unbuffered"},
    {"X W O", "python", kPython},
    {"gpus gpu", nullptr, kGpus},
    {"num-workers backend dist-backend dist-url init-method deepspeed deepspeed-config config "
     "epochs batch-size lr",
     kScript, kBehind},
    {"world-size", kScript,
     "leave it out: it is --nnodes times --nproc-per-node, and workers find it in WORLD_SIZE"},
    {"rank", kScript,
     "leave it out: workers find theirs in RANK; the number of this node is --node-rank=N"},
    {"rdzv-timeout", nullptr,
     "write --rdzv-conf=timeout=SECONDS, or with --rdzv-backend=c10d "
     "--rdzv-conf=join_timeout=SECONDS"},
    {"join-timeout", nullptr,
     "write --rdzv-conf=join_timeout=SECONDS, which is for --rdzv-backend=c10d"},
};

constexpr std::string_view kProcesses[] = {"torchrun",  "mpirun",     "mpiexec",          "srun",
                                           "deepspeed", "horovodrun", "accelerate-launch"};
constexpr std::string_view kModules[] = {"torch.distributed.run", "torch.distributed.launch",
                                         "accelerate.commands.launch"};

template <typename List>
bool has(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// How the command names it; empty: none.
std::string launcher_in(const std::vector<std::string>& command, bool module) {
  const std::string_view program = file_name(command.front());
  const auto word = [&](std::size_t i) { return command.size() > i ? command[i] : ""; };
  if (module) return has(kModules, command.front()) ? command.front() : "";
  if (has(kProcesses, program)) return std::string(program);
  if (program == "accelerate" && word(1) == "launch") return "accelerate launch";
  const bool python = program.starts_with("python") && word(1) == "-m";
  return python && has(kModules, word(2)) ? "python -m " + word(2) : "";
}

}  // namespace

std::string answer_to_option(std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '_', '-');
  const auto* found = std::ranges::find_if(kForeignOptions, [&](const ForeignOptions& options) {
    return has(split_list(std::string(options.names), ' '), plain);
  });
  if (found == std::end(kForeignOptions)) return "";
  if (found->answer == kBehind)
    return fmt::format(", which is {}'s; {}{}", found->owner, found->answer, name);
  return found->owner ? fmt::format(", which is {}'s; {}", found->owner, found->answer)
                      : fmt::format("; {}", found->answer);
}

std::string hint_for_launcher(const std::vector<std::string>& command, bool module) {
  const std::string launcher = launcher_in(command, module);
  if (launcher.empty()) return "";
  return fmt::format(
      "'{}' is itself a launcher, and each worker will start one: write ddp-run in its place, "
      "as in ddp-run --nproc_per_node=2 train.py",
      launcher);
}

}  // namespace ddp::launch
