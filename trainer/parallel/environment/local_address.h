// Which of this machine's addresses the other nodes reach.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// The numeric address that this machine uses on its way to `host`, which all ranks can reach;
/// nothing is sent. A host's own name often resolves to 127.0.1.1, which no other node reaches.
/// Empty if `host` cannot be resolved or there is no route.
std::string local_address_towards(const std::string& host, uint16_t port);

}  // namespace ddp::train
