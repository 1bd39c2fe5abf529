#include "trainer/app/chosen_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "trainer/config/cpu_amp.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/process/cpu_flags.h"
#include "trainer/runtime/with_key.h"

namespace ddp::train {

torch::Device chosen_device(DeviceChoice choice) {
  return with_key("--device cuda", [&] { return plan_device(choice, {}, DistEnv{}).device; });
}

void settle_amp_here(TrainerConfig& config) {
  const std::string warning = settle_amp(config, cpu_computes_in(config.amp_dtype, cpu_flags()));
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
}

std::string settle_amp_among(ProcessGroup& group, TrainerConfig& config,
                             const TrainerConfig* before) {
  if (!config.use_amp) return "";
  const auto can = group.gather_doubles(cpu_computes_in(config.amp_dtype, cpu_flags()) ? 1.0 : 0.0);
  const bool all_can = *std::min_element(can.begin(), can.end()) == 1.0;
  const std::string warning = settle_amp(config, all_can, before);
  return group.is_main() ? warning : "";
}

}  // namespace ddp::train
