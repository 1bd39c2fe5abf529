#include "launcher/base/worker.h"

#include <fmt/format.h>

#include "launcher/base/signal_names.h"

namespace ddp::launch {

std::string describe_exit(const ExitStatus& exit) {
  return exit.signal != 0 ? "killed by " + signal_name(exit.signal)
                          : fmt::format("exit code {}", exit.code);
}

}  // namespace ddp::launch
