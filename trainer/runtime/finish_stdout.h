// The end of what a mode prints: a full disk must not pass for success.
#pragma once

namespace ddp::train {

/// Flushes stdout. Throws RunError when something written to it was lost.
void finish_stdout();

}  // namespace ddp::train
