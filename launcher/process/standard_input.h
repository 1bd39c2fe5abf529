// Decides who reads ddp-run's standard input.
#pragma once

namespace ddp::launch {

/// Moves standard input away from the workers, which read end-of-file instead; returns its new
/// descriptor. Throws LaunchError.
int take_standard_input();

/// Replaces standard input with /dev/null if it is a terminal and ddp-run is in its background, as
/// after `ddp-run ... &`. Otherwise workers, which are in sessions of their own without job
/// control, would read what is typed for the shell. Call it in the terminal's session.
void leave_input_to_foreground();

}  // namespace ddp::launch
