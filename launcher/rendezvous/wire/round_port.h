// The port at which a round's workers meet: held for rank 0, or that of the agent's own store.
#pragma once

#include <string>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

/// Holds a port for rank 0; 0: any free one. Binds [::]:port (0.0.0.0 without IPv6) with
/// SO_REUSEADDR and never listens. The kernel never assigns a bound port as an ephemeral one,
/// neither in bind nor in connect, yet lets a socket with SO_REUSEADDR (which torch's TCPStore
/// sets) bind and listen on that same port. Throws LaunchError (2) if the port is taken.
Descriptor hold_port(int port);

/// Listens, non-blocking, on the addresses that clients of `master_addr` reach (bind_plans), before
/// any worker starts: the port is known before exec, and no connection is refused. port 0: any free
/// one. Throws LaunchError (2) if the port is taken.
Descriptor listen_for_workers(const std::string& master_addr, int port);
/// Closes connections waiting to be accepted, left from an earlier round on the same port.
void refuse_waiting(int listener);

}  // namespace ddp::launch
