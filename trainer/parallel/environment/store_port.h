// Waiting for the store that another process of this machine is about to open.
#pragma once

#include <chrono>
#include <cstdint>

namespace ddp::train {

/// Returns when a socket of this machine listens at `port`, or `limit` is over, or nobody can tell.
/// Connects to nothing. torch's client sleeps for half a second and more when it is refused.
void wait_for_listener(uint16_t port, std::chrono::milliseconds limit);

}  // namespace ddp::train
