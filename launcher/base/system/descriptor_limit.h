// The limit on open files (RLIMIT_NOFILE). The host of a thousand nodes needs more than the usual
// 1024, but programs that use select() break above it, so workers get the original limit back.
#pragma once

#include <cstddef>

namespace ddp::launch {

/// Returns the current soft limit.
std::size_t descriptor_limit();
/// Raises this process's soft limit to the hard limit.
void raise_descriptor_limit();
/// Undoes raise_descriptor_limit() in a child before exec. Makes system calls only.
void restore_descriptor_limit();

}  // namespace ddp::launch
