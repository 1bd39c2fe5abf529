#include "launcher/base/system/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void close_descriptor(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void close_all_from(int first) {
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0) == 0) return;
  // For kernels before 5.9.
  const int limit = static_cast<int>(std::min(::sysconf(_SC_OPEN_MAX), 65536L));
  for (int fd = first; fd < limit; ++fd) ::close(fd);
}

PipeEnds open_pipe(const char* purpose) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) return {ends[0], ends[1]};
  throw LaunchError(kExitFailed,
                    fmt::format("cannot {}: {}; raise ulimit -n", purpose, error_text(errno)));
}

int open_null_device(int flags) {
  const int fd = ::open("/dev/null", flags | O_CLOEXEC);
  if (fd >= 0) return fd;
  const char* tip = errno == EMFILE || errno == ENFILE
                        ? "raise ulimit -n"
                        : "a container needs its devices: start it with a /dev";
  throw LaunchError(kExitFailed, "cannot open /dev/null: " + error_text(errno) + "; " + tip);
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace ddp::launch
