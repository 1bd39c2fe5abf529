#include "launcher/cli/other_launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddp::launch {
namespace {

struct ForeignOption {
  const char* name;  // with dashes
  const char* owner;
  const char* answer;
};

constexpr const char* kPerNode = "write --nproc-per-node=N, the processes of one node";
constexpr const char* kNodes = "write --nnodes=N";
constexpr const char* kHosts = "write --hosts=HOST:N,...";
constexpr const char* kLeaveOut = "leave it out";
constexpr const char* kPlugIn = "only accelerate launch sets that up";
constexpr const char* kSlurm =
    "give it to srun or sbatch: srun --ntasks-per-node=1 ddp-run --scheduler=slurm ...";

constexpr std::array kForeignOptions{
    ForeignOption{"num-processes", "accelerate", kPerNode},
    ForeignOption{"num-machines", "accelerate", kNodes},
    ForeignOption{"machine-rank", "accelerate", "write --node-rank=N"},
    ForeignOption{"main-process-ip", "accelerate", "write --master-addr=HOST"},
    ForeignOption{"main-process-port", "accelerate", "write --master-port=PORT"},
    ForeignOption{"gpu-ids", "accelerate", "write --devices=LIST"},
    ForeignOption{"multi-gpu", "accelerate", kLeaveOut},
    ForeignOption{"same-network", "accelerate", kLeaveOut},
    ForeignOption{"cpu", "accelerate", "set ACCELERATE_USE_CPU=true"},
    ForeignOption{"use-cpu", "accelerate", "set ACCELERATE_USE_CPU=true"},
    ForeignOption{"mixed-precision", "accelerate", "set ACCELERATE_MIXED_PRECISION, e.g. to bf16"},
    ForeignOption{"num-cpu-threads-per-process", "accelerate", "set OMP_NUM_THREADS=N"},
    ForeignOption{"config-file", "accelerate", kPlugIn},
    ForeignOption{"use-deepspeed", "accelerate", kPlugIn},
    ForeignOption{"use-fsdp", "accelerate", kPlugIn},
    ForeignOption{"num-gpus", "deepspeed", kPerNode},
    ForeignOption{"num-nodes", "deepspeed", kNodes},
    ForeignOption{"include", "deepspeed", "write --hosts=HOST:N,... or --devices=LIST"},
    ForeignOption{"np", "mpirun", kPerNode},
    ForeignOption{"n", "mpirun", kPerNode},
    ForeignOption{"npernode", "mpirun", kPerNode},
    ForeignOption{"ppn", "mpirun", kPerNode},
    ForeignOption{"H", "mpirun", kHosts},
    ForeignOption{"host", "mpirun", kHosts},
    ForeignOption{"x", "mpirun", "write --export=NAME,... with --hosts; else all are passed on"},
    ForeignOption{"bind-to", "mpirun", "write --numa-binding=node"},
    ForeignOption{"map-by", "mpirun", "write --numa-binding=node"},
    ForeignOption{"allow-run-as-root", "mpirun", kLeaveOut},
    ForeignOption{"oversubscribe", "mpirun", kLeaveOut},
    ForeignOption{"N", "srun", kSlurm},
    ForeignOption{"ntasks", "srun", kSlurm},
    ForeignOption{"ntasks-per-node", "srun", kSlurm},
    ForeignOption{"gres", "srun", kSlurm},
    ForeignOption{"gpus-per-node", "srun", kSlurm},
    ForeignOption{"u", "python", "leave it out: scripts run unbuffered"},
};

constexpr std::string_view kProcesses[] = {"torchrun", "mpirun",    "mpiexec",
                                           "srun",     "deepspeed", "horovodrun"};
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
  return fmt::format("which is {}'s; {}", found->owner, found->answer);
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
