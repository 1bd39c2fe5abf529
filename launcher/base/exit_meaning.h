// Exit codes of a worker that mean more than "failed", and for which program.
#pragma once

#include "launcher/base/worker.h"

namespace ddp::launch {

enum class WorkerProgram {
  kOther,    // its exit codes are its own
  kTrainer,  // the one that is installed next to ddp-run: kExitCodeMeanings
};

enum class ExitMeaning {
  kNone,
  kUsage,      // kExitUsage: its command line or configuration is wrong
  kPreempted,  // kExitPreempted: it saved its state and wants to be restarted later
  kFinal,      // kExitFinal: it would fail the same way again
};

/// Returns None for any other program and for an end by a signal.
ExitMeaning meaning_of(WorkerProgram program, const ExitStatus& exit);

}  // namespace ddp::launch
