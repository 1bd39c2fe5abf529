// How this machine is reached, and when its store is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::train {

/// Returns the numeric address that this machine uses towards `host`, which all ranks can reach;
/// sends nothing. A host's own name often resolves to 127.0.1.1, unreachable for other nodes.
/// Returns "" if `host` cannot be resolved or there is no route.
std::string local_address_towards(const std::string& host, uint16_t port);

/// Blocks until a socket of this machine listens at `port`, `limit` is over, or that cannot be
/// determined. Never connects: torch's client sleeps half a second or more after a refusal.
void wait_for_listener(uint16_t port, std::chrono::milliseconds limit);

}  // namespace ddp::train
