#include "launcher/process/standard_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

void replace_standard_input() {
  const Descriptor nothing = open_null_device(O_RDONLY);
  if (::dup2(nothing.get(), STDIN_FILENO) < 0)
    throw LaunchError(kExitFailed, "cannot replace standard input: " + error_text(errno));
}

}  // namespace

int take_standard_input() {
  const int fd = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (fd < 0) throw LaunchError(kExitFailed, "cannot watch standard input: " + error_text(errno));
  replace_standard_input();
  return fd;
}

void leave_input_to_foreground() {
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);  // -1: no terminal, or another session's
  if (foreground > 0 && foreground != ::getpgrp()) replace_standard_input();
}

}  // namespace ddp::launch
