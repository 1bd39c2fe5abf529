#include "launcher/cli/other_launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddp::launch {
namespace {

struct ForeignOption {
  const char* name;   // with dashes
  const char* owner;  // nullptr: nobody's
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

constexpr std::array kForeignOptions{
    ForeignOption{"num-processes", "accelerate", kPerNode},
    ForeignOption{"num-machines", "accelerate", kNodes},
    ForeignOption{"machine-rank", "accelerate", "write --node-rank=N"},
    ForeignOption{"main-process-ip", "accelerate", "write --master-addr=HOST"},
    ForeignOption{"main-process-port", "accelerate", "write --master-port=PORT"},
    ForeignOption{"gpu-ids", "accelerate", "set CUDA_VISIBLE_DEVICES=LIST"},
    ForeignOption{"multi-gpu", "accelerate", kLeaveOut},
    ForeignOption{"same-network", "accelerate", kLeaveOut},
    ForeignOption{"cpu", "accelerate", "set ACCELERATE_USE_CPU=true"},
    ForeignOption{"use-cpu", "accelerate", "set ACCELERATE_USE_CPU=true"},
    ForeignOption{"mixed-precision", "accelerate", "set ACCELERATE_MIXED_PRECISION, e.g. to bf16"},
    ForeignOption{"num-cpu-threads-per-process", "accelerate", "set OMP_NUM_THREADS=N"},
    ForeignOption{"config-file", "accelerate", kPlugIn},
    ForeignOption{"use-deepspeed", "accelerate", kPlugIn},
    ForeignOption{"use-fsdp", "accelerate", kPlugIn},
    ForeignOption{"deepspeed-config-file", "accelerate", kPlugIn},
    ForeignOption{"dynamo-backend", "accelerate", kPlugIn},
    ForeignOption{"dynamo-mode", "accelerate", kPlugIn},
    ForeignOption{"zero-stage", "accelerate", kPlugIn},
    ForeignOption{"zero3-init-flag", "accelerate", kPlugIn},
    ForeignOption{"num-gpus", "deepspeed", kPerNode},
    ForeignOption{"num-nodes", "deepspeed", kNodes},
    ForeignOption{"include", "deepspeed",
                  "write --hosts=HOST:N,... or set CUDA_VISIBLE_DEVICES=LIST"},
    ForeignOption{"np", "mpirun", kPerNode},
    ForeignOption{"n", "mpirun", kPerNode},
    ForeignOption{"npernode", "mpirun", kPerNode},
    ForeignOption{"ppn", "mpirun", kPerNode},
    ForeignOption{"H", "mpirun", kHosts},
    ForeignOption{"host", "mpirun", kHosts},
    ForeignOption{"hostfile", "mpirun", "write --hosts=@FILE"},
    ForeignOption{"x", "mpirun", "write --export=NAME,... with --hosts; else all are passed on"},
    ForeignOption{"bind-to", "mpirun", "write --numa-binding=node"},
    ForeignOption{"map-by", "mpirun", "write --numa-binding=node"},
    ForeignOption{"mca", "mpirun", "leave it and its two values out"},
    ForeignOption{"allow-run-as-root", "mpirun", kLeaveOut},
    ForeignOption{"oversubscribe", "mpirun", kLeaveOut},
    ForeignOption{"N", "srun", kSlurm},
    ForeignOption{"ntasks", "srun", kSlurm},
    ForeignOption{"ntasks-per-node", "srun", kSlurm},
    ForeignOption{"gres", "srun", kSlurm},
    ForeignOption{"gpus-per-node", "srun", kSlurm},
    ForeignOption{"cpu-bind", "srun", "write --numa-binding=node, or give it to srun"},
    ForeignOption{"u", "python", "leave it out: scripts run unbuffered"},
    ForeignOption{"X", "python", kPython},
    ForeignOption{"W", "python", kPython},
    ForeignOption{"O", "python", kPython},
    ForeignOption{"gpus", nullptr, kGpus},
    ForeignOption{"gpu", nullptr, kGpus},
    ForeignOption{"num-workers", kScript, kBehind},
    ForeignOption{"backend", kScript, kBehind},
    ForeignOption{"dist-backend", kScript, kBehind},
    ForeignOption{"dist-url", kScript, kBehind},
    ForeignOption{"init-method", kScript, kBehind},
    ForeignOption{"deepspeed", kScript, kBehind},
    ForeignOption{"deepspeed-config", kScript, kBehind},
    ForeignOption{"config", kScript, kBehind},
    ForeignOption{"epochs", kScript, kBehind},
    ForeignOption{"batch-size", kScript, kBehind},
    ForeignOption{"lr", kScript, kBehind},
    ForeignOption{"world-size", kScript,
                  "leave it out: it is --nnodes times --nproc-per-node, and workers find it in "
                  "WORLD_SIZE"},
    ForeignOption{"rank", kScript,
                  "leave it out: workers find theirs in RANK; the number of this node is "
                  "--node-rank=N"},
    ForeignOption{"rdzv-timeout", nullptr,
                  "write --rdzv-conf=timeout=SECONDS, or with --rdzv-backend=c10d "
                  "--rdzv-conf=join_timeout=SECONDS"},
    ForeignOption{"join-timeout", nullptr,
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
  const auto* found =
      std::find_if(kForeignOptions.begin(), kForeignOptions.end(),
                   [&](const ForeignOption& option) { return option.name == plain; });
  if (found == kForeignOptions.end()) return "";
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
