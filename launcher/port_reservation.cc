#include "launcher/port_reservation.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/console.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

int bind_any(int family, int port) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  Address address{};
  socklen_t size = sizeof address.v4;
  if (family == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // both families by one socket
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(static_cast<in_port_t>(port));
    size = sizeof address.v6;
  } else {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(static_cast<in_port_t>(port));
  }
  if (::bind(fd, &address.any, size) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

int port_of(int fd) {
  Address address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, &address.any, &size);
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

}  // namespace

PortReservation::PortReservation(int port) {
  fd_ = bind_any(AF_INET6, port);
  if (fd_ < 0 && errno != EADDRINUSE && errno != EACCES) fd_ = bind_any(AF_INET, port);
  if (fd_ < 0) {
    const int error = errno;
    throw LaunchError(
        kExitUsage, fmt::format("--master-port={}: {}; choose another port, or leave it out to be "
                                "given a free one",
                                port, error_text(error)));
  }
  port_ = port_of(fd_);
}

PortReservation::~PortReservation() {
  if (fd_ >= 0) ::close(fd_);
}

PortReservation::PortReservation(PortReservation&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

PortReservation& PortReservation::operator=(PortReservation&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(port_, other.port_);
  return *this;
}

}  // namespace ddp::launch
