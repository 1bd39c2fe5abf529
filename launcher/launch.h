// From the command line to the exit code.
#pragma once

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Runs ddp-run; an error ends it with one line on stderr.
int guarded_main(int argc, const char* const* argv, SignalMailbox& signals) noexcept;

}  // namespace ddp::launch
