#include "launcher/base/system/acceptor.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "launcher/base/errors.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kRest{200};

// The process, the system or the kernel's memory is exhausted: closing something may help.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

int Acceptor::accept(int listener) {
  while (!rests_until_) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return fd;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return -1;
    // Else only this connection has failed, of which accept(2) lists the errors: take the next.
    if (is_shortage(errno) || errno == EBADF || errno == EINVAL || errno == ENOTSOCK ||
        errno == EOPNOTSUPP)
      rest(errno);
  }
  return -1;
}

void Acceptor::rest(int error) {
  rests_until_ = Clock::now() + kRest;
  if (std::exchange(warned_, true)) return;
  warning_ = fmt::format("{} cannot accept connections for now: {}{}", place_, error_text(error),
                         is_shortage(error) ? "; they wait until others are closed (raise the hard "
                                              "limit, ulimit -Hn)"
                                            : "");
}

bool Acceptor::wake() {
  if (!rests_until_ || Clock::now() < *rests_until_) return false;
  rests_until_.reset();
  return true;
}

}  // namespace ddp::launch
