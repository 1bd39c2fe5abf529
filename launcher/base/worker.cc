#include "launcher/base/worker.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/base/signal_names.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

std::string describe_exit(const ExitStatus& exit) {
  return exit.signal != 0 ? "killed by " + signal_name(exit.signal)
                          : fmt::format("exit code {}", exit.code);
}

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

int exit_code_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status)
                                : kExitSignalBase + WTERMSIG(wait_status);
}

}  // namespace ddp::launch
