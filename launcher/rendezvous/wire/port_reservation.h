// Reserves a local TCP port for rank 0: no other process gets it, but rank 0 can listen on it.
#pragma once

#include "launcher/base/errors.h"

namespace ddp::launch {

/// Binds [::]:port (0.0.0.0 without IPv6) with SO_REUSEADDR and never listens. The kernel never
/// assigns a bound port as an ephemeral one, neither in bind nor in connect, yet lets a socket with
/// SO_REUSEADDR (which torch's TCPStore sets) bind and listen on that same port.
class PortReservation {
 public:
  /// port 0: any free port. Throws LaunchError (2) if the port is taken.
  explicit PortReservation(int port);
  ~PortReservation();
  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;

  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

/// Returns the error for a port that cannot be bound.
LaunchError port_taken(int port, int error);

}  // namespace ddp::launch
