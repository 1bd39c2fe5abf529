#include <fmt/format.h>
#include <torch/version.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/runtime/process/build_commit.h"

namespace ddp::train {

int run_show(const TrainerArgs& args) {
  print(show_text(args));
  return launch::kExitDone;
}

int run_version() {
  const std::string commit = kBuildCommit;
  print(fmt::format("trainer {} (LibTorch {}{})\n", DDP_VERSION, TORCH_VERSION,
                    commit.empty() ? "" : ", commit " + commit));
  return launch::kExitDone;
}

}  // namespace ddp::train
