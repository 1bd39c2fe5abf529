// Who may read ddp-run's standard input.
#pragma once

namespace ddp::launch {

/// Moves standard input away from the workers, which read end-of-file instead; returns its new
/// descriptor. Throws LaunchError.
int take_standard_input();

/// Replaces a terminal by /dev/null if ddp-run is in its background, as after `ddp-run ... &`.
/// Workers have sessions of their own, where the kernel neither stops them (SIGTTIN) nor keeps them
/// from taking what is typed for the shell. Call it in the terminal's session.
void leave_input_to_foreground();

}  // namespace ddp::launch
