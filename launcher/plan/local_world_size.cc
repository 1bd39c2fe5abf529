#include "launcher/plan/local_world_size.h"

#include <fmt/format.h>

#include "launcher/base/errors.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

int local_world_size(const std::string& value, const MachineView& machine) {
  if (const auto number = parse_local_world_size(value)) return *number;
  if (value == "cpu") return machine.cpus;
  if (const int gpus = count_gpus(machine); gpus > 0) return gpus;
  if (value == "auto") return machine.cpus;
  if (installed_gpus(machine) > 0) {
    throw LaunchError(kExitUsage, fmt::format("--nproc_per_node=gpu, but CUDA_VISIBLE_DEVICES='{}' "
                                              "hides every GPU; unset it, or use cpu or a number",
                                              machine.cuda_visible_devices.value_or("")));
  }
  throw LaunchError(kExitUsage,
                    "--nproc_per_node=gpu, but no NVIDIA GPU was found; use cpu or a number");
}

}  // namespace ddp::launch
