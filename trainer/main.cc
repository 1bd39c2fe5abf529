// trainer: trains minGPT with DistributedDataParallel. What each mode does is in modes.h.
#include <cstdio>

#include "launcher/worker_contract.h"
#include "trainer/config/trainer_args.h"
#include "trainer/modes.h"
#include "trainer/report.h"

namespace ddp::train {
namespace {

int run(int argc, const char* const* argv) {
  const TrainerArgs args = parse_trainer_args(argc, argv);
  switch (args.mode) {
    case Mode::kTrain:
      return run_train(args);
    case Mode::kGenerate:
      return run_generate(args);
    case Mode::kInspect:
      return run_inspect(args);
    case Mode::kDoctor:
      return run_doctor(args);
    case Mode::kVersion:
      return run_version();
    case Mode::kHelp:
      return std::fputs(args.help_text.c_str(), stdout) < 0 ? launch::kExitFailed
                                                            : launch::kExitDone;
  }
  return launch::kExitFailed;
}

int guarded_main(int argc, const char* const* argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    return report_current_exception();
  }
}

}  // namespace
}  // namespace ddp::train

int main(int argc, char** argv) { return ddp::train::guarded_main(argc, argv); }
