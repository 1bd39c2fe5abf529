// /dev/null.
#pragma once

namespace ddp::launch {

/// Opens it, close-on-exec. Throws LaunchError if that fails: what was to be cut off would be
/// connected to ddp-run's own streams instead.
int open_null_device(int flags);

}  // namespace ddp::launch
