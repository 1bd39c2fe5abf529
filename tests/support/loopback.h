// Ports of 127.0.0.1 for tests.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <random>

namespace ddp::test {

struct LoopbackSocket {
  int fd;
  int port;
};

inline sockaddr_in loopback_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

/// A TCP socket that is bound to a port, 0 for one that the kernel chooses; the caller closes it.
inline std::optional<LoopbackSocket> loopback_socket(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback_address(port);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0)
    return LoopbackSocket{fd, ntohs(address.sin_port)};
  ::close(fd);
  return std::nullopt;
}

inline LoopbackSocket bound_loopback_socket() { return loopback_socket(0).value(); }

/// A TCP socket that is connected to a port; -1: nothing listens there.
inline int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback_address(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

/// An unused port, and none of those that the kernel gives to connections, which may be those of
/// other tests.
inline int unused_port() {
  int first_given = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_given;
  std::random_device random;
  for (;;) {
    const int port = std::uniform_int_distribution(first_given / 2, first_given - 1)(random);
    if (const auto socket = loopback_socket(port)) {
      ::close(socket->fd);
      return port;
    }
  }
}

}  // namespace ddp::test
