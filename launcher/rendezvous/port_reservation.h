// A TCP port of this machine that nobody else is given while it is held, and that rank 0 can still
// listen on.
#pragma once

#include "launcher/base/errors.h"

namespace ddp::launch {

/// Binds [::]:port (0.0.0.0 without IPv6) with SO_REUSEADDR and never listens. The kernel gives a
/// bound port to nobody who asks for "any port", neither by bind nor by connect, yet lets a socket
/// with SO_REUSEADDR (torch's TCPStore sets it) bind the very same port and listen on it. So there
/// is no moment at which it is free.
class PortReservation {
 public:
  /// port 0: any free one. Throws LaunchError (2) when the port is taken.
  explicit PortReservation(int port);
  ~PortReservation();
  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;

  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

/// What to say when the port cannot be had.
LaunchError port_taken(int port, int error);

}  // namespace ddp::launch
