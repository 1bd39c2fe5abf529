#include "launcher/rendezvous/wire/listening_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/port_reservation.h"

namespace ddp::launch {

ListeningSocket::ListeningSocket(const std::string& master_addr, int port) {
  fd_ = bind_socket(bind_plans(master_addr), port);
  if (fd_ < 0) throw port_taken(port, errno);
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  // All workers may queue here before the first is served; the kernel caps this at somaxconn.
  if (::listen(fd_, 65535) != 0) {
    const int error = errno;
    ::close(fd_);
    throw port_taken(port, error);
  }
  port_ = port_of(fd_);
}

ListeningSocket::~ListeningSocket() { ::close(fd_); }

void ListeningSocket::refuse_waiting() const {
  for (int fd; (fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) ::close(fd);
}

}  // namespace ddp::launch
