// What a worker writes into when ddp-run copies its output.
#pragma once

namespace ddp::launch {

struct PipeEnds {
  int read = -1;  // non-blocking
  int write = -1;
};

/// Throws LaunchError when there are no descriptors left. Both ends are close-on-exec.
PipeEnds open_worker_pipe();

/// A pseudo-terminal of the size of `original`: a worker that found a terminal still finds one, so
/// progress bars look as they always did. A pipe when there is none to be had.
PipeEnds open_worker_terminal(int original);

}  // namespace ddp::launch
