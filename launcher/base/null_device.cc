#include "launcher/base/null_device.h"

#include <fcntl.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

int open_null_device(int flags) {
  const int fd = ::open("/dev/null", flags | O_CLOEXEC);
  if (fd >= 0) return fd;
  const char* tip = errno == EMFILE || errno == ENFILE
                        ? "raise ulimit -n"
                        : "a container needs its devices: start it with a /dev";
  throw LaunchError(kExitFailed, "cannot open /dev/null: " + error_text(errno) + "; " + tip);
}

}  // namespace ddp::launch
