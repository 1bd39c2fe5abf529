// The limit on open files (RLIMIT_NOFILE). A host of a thousand nodes needs more than the usual
// 1024; programs that use select() break with more, so that all others keep what they had.
#pragma once

#include <cstddef>

namespace ddp::launch {

/// The present soft limit.
std::size_t descriptor_limit();
/// Raises this process's soft limit to the hard limit.
void raise_descriptor_limit();
/// Sets back what raise_descriptor_limit() has changed: in a child, before exec. Only makes system
/// calls.
void restore_descriptor_limit();

}  // namespace ddp::launch
