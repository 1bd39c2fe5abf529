#include "launcher/base/exit_meaning.h"

#include "launcher/worker_contract.h"

namespace ddp::launch {

ExitMeaning meaning_of(WorkerProgram program, const ExitStatus& exit) {
  if (program != WorkerProgram::Trainer || exit.signal != 0) return ExitMeaning::None;
  switch (exit.code) {
    case kExitUsage:
      return ExitMeaning::Usage;
    case kExitPreempted:
      return ExitMeaning::Preempted;
    case kExitFinal:
      return ExitMeaning::Final;
    default:
      return ExitMeaning::None;
  }
}

}  // namespace ddp::launch
