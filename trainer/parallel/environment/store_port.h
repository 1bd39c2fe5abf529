// Waits for the store that another process of this machine is about to open.
#pragma once

#include <chrono>
#include <cstdint>

namespace ddp::train {

/// Blocks until a socket of this machine listens at `port`, `limit` is over, or that cannot be
/// determined. Never connects: torch's client sleeps half a second or more after a refusal.
void wait_for_listener(uint16_t port, std::chrono::milliseconds limit);

}  // namespace ddp::train
