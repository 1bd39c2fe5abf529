// Finds the address of this machine that other nodes can reach.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// Returns the numeric address that this machine uses towards `host`, which all ranks can reach;
/// sends nothing. A host's own name often resolves to 127.0.1.1, unreachable for other nodes.
/// Returns "" if `host` cannot be resolved or there is no route.
std::string local_address_towards(const std::string& host, uint16_t port);

}  // namespace ddp::train
