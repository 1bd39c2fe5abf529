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
  const PipeEnds ends = open_pipe("create a pipe for a worker's output");
  ::fcntl(ends.write, F_SETPIPE_SZ, kPipeSize);  // best effort: the default size works as well
  ::fcntl(ends.read, F_SETFL, O_NONBLOCK);
  return ends;
}

void copy_window_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

PipeEnds open_worker_terminal(int original) {
  PipeEnds ends;
  ends.read = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[128];
  if (ends.read < 0 || ::grantpt(ends.read) != 0 || ::unlockpt(ends.read) != 0 ||
      ::ptsname_r(ends.read, name, sizeof name) != 0 ||
      (ends.write = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
    if (ends.read >= 0) ::close(ends.read);
    return open_worker_pipe();
  }
  termios settings{};
  if (::tcgetattr(ends.write, &settings) == 0) {
    ::cfmakeraw(&settings);  // pass bytes through; the real terminal does the rest
    ::tcsetattr(ends.write, TCSANOW, &settings);
  }
  copy_window_size(original, ends.write);
  ::fcntl(ends.read, F_SETFL, O_NONBLOCK);
  return ends;
}

}  // namespace ddp::launch
