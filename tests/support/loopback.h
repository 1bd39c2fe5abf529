// Ports of 127.0.0.1 for tests.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace ddp::test {

struct LoopbackSocket {
  int fd;
  int port;
};

/// A TCP socket that is bound to a port the kernel chose; the caller closes it.
inline LoopbackSocket bound_loopback_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, any, size) != 0 || ::getsockname(fd, any, &size) != 0) std::abort();
  return {fd, ntohs(address.sin_port)};
}

/// A port at which nobody listens. Nobody else binds it soon: the kernel hands out other ones
/// first.
inline int unused_port() {
  const LoopbackSocket socket = bound_loopback_socket();
  ::close(socket.fd);
  return socket.port;
}

}  // namespace ddp::test
