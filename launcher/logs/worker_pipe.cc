#include "launcher/logs/worker_pipe.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace ddp::launch {
namespace {

constexpr int kPipeSize = 256 << 10;  // fewer context switches than with 64 KiB

}  // namespace

PipeEnds open_worker_pipe() {
  PipeEnds ends = open_pipe("create a pipe for a worker's output");
  ::fcntl(ends.write.get(), F_SETPIPE_SZ, kPipeSize);  // best effort: the default works as well
  ::fcntl(ends.read.get(), F_SETFL, O_NONBLOCK);
  return ends;
}

void copy_window_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

PipeEnds open_worker_terminal(int original) {
  Descriptor ours(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[128];
  if (ours.get() < 0 || ::grantpt(ours.get()) != 0 || ::unlockpt(ours.get()) != 0 ||
      ::ptsname_r(ours.get(), name, sizeof name) != 0)
    return open_worker_pipe();
  Descriptor theirs(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (theirs.get() < 0) return open_worker_pipe();
  termios settings{};
  if (::tcgetattr(theirs.get(), &settings) == 0) {
    ::cfmakeraw(&settings);  // pass bytes through; the real terminal does the rest
    ::tcsetattr(theirs.get(), TCSANOW, &settings);
  }
  copy_window_size(original, theirs.get());
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  return {std::move(ours), std::move(theirs)};
}

}  // namespace ddp::launch
