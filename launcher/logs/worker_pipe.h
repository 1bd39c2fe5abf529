// The pipe or pseudo-terminal of a worker whose output ddp-run copies.
#pragma once

#include "launcher/base/descriptors.h"

namespace ddp::launch {

/// The read end does not block. Throws LaunchError if no descriptors are left.
PipeEnds open_worker_pipe();

/// A pseudo-terminal with the size of `original`, so that a worker on a terminal still sees one and
/// progress bars keep working. Falls back to a pipe.
PipeEnds open_worker_terminal(int original);
/// From one terminal to another; does nothing if one of the two is none.
void copy_window_size(int from, int to);

}  // namespace ddp::launch
