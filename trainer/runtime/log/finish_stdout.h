// Ends the output of a mode: a full disk must not look like success.
#pragma once

namespace ddp::train {

/// Flushes stdout. Throws RunError if output was lost.
void finish_stdout();

}  // namespace ddp::train
