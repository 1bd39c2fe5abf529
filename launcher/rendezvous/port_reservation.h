// Reserves a local TCP port so that no one else gets it, while rank 0 can still listen on it.
#pragma once

#include "launcher/base/errors.h"

namespace ddp::launch {

/// Binds [::]:port (0.0.0.0 without IPv6) with SO_REUSEADDR and never listens. The kernel never
/// hands out a bound port as "any port", neither in bind nor in connect, yet lets a socket with
/// SO_REUSEADDR (as torch's TCPStore sets) bind and listen on that same port. So it is never free.
class PortReservation {
 public:
  /// port 0: any free one. Throws LaunchError (2) if the port is taken.
  explicit PortReservation(int port);
  ~PortReservation();
  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;

  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

/// The error for a port that cannot be bound.
LaunchError port_taken(int port, int error);

}  // namespace ddp::launch
