// The pipe or pseudo-terminal of a worker whose output ddp-run copies.
#pragma once

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

/// The read end does not block. Throws LaunchError if no descriptors are left.
PipeEnds open_worker_pipe();

/// Opens a pseudo-terminal with the size of `original`, so that progress bars still work. Falls
/// back to a pipe.
PipeEnds open_worker_terminal(int original);
/// Copies the window size; does nothing unless both are terminals.
void copy_window_size(int from, int to);

}  // namespace ddp::launch
