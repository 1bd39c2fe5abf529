#include "launcher/base/exit_meaning.h"

#include "launcher/worker_contract.h"

namespace ddp::launch {

ExitMeaning meaning_of(WorkerProgram program, const ExitStatus& exit) {
  if (program != WorkerProgram::kTrainer || exit.signal != 0) return ExitMeaning::kNone;
  switch (exit.code) {
    case kExitUsage:
      return ExitMeaning::kUsage;
    case kExitPreempted:
      return ExitMeaning::kPreempted;
    case kExitFinal:
      return ExitMeaning::kFinal;
    default:
      return ExitMeaning::kNone;
  }
}

}  // namespace ddp::launch
