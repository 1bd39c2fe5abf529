// Signal names and numbers.
#pragma once

#include <signal.h>

#include <string>
#include <string_view>

namespace ddp::launch {

/// Asks a running ddp-run for its workers' stacks. By default ignored: harmless to any other
/// process.
inline constexpr int kStacksSignal = SIGURG;

/// "SIGTERM", "TERM" or "15" -> 15. Returns 0 for anything that is not a signal or cannot be
/// handled (KILL, STOP, CHLD, faults).
int signal_number(std::string_view name);
/// 15 -> "SIGTERM".
std::string signal_name(int signal);

}  // namespace ddp::launch
