#include "trainer/app/chosen_device.h"

#include <fmt/format.h>

#include "trainer/parallel/dist_env.h"
#include "trainer/parallel/process_group.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

torch::Device chosen_device(DeviceChoice choice) {
  Config config;
  config.trainer.device = choice;
  try {
    return plan_device(config, DistEnv{}).device;
  } catch (const UserError& error) {
    throw UserError(fmt::format("--device cuda: {}", error.what()));
  }
}

}  // namespace ddp::train
