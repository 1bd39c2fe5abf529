#include "launcher/rendezvous/wire/port_reservation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/base/system/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

PortReservation::PortReservation(int port) {
  fd_ = bind_socket(bind_plans(""), port);
  if (fd_ < 0) throw port_taken(port, errno);
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

LaunchError port_taken(int port, int error) {
  if (error == EMFILE || error == ENFILE) {
    return LaunchError(kExitFailed,
                       fmt::format("cannot open a socket for --master-port: {}; raise ulimit -n",
                                   error_text(error)));
  }
  return LaunchError(
      kExitUsage,
      fmt::format("--master-port={}: {}; choose another port, or omit it to get a free one", port,
                  error_text(error)));
}

}  // namespace ddp::launch
