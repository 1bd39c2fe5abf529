// Detects processes killed for exceeding their CPU time limit (RLIMIT_CPU, ulimit -t).
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::launch {

/// Returns "CPU time limit: ..." if that is why `signal` killed `pid`, else "". `pid`: a child that
/// is not reaped yet.
std::string cpu_limit_verdict(pid_t pid, int signal);

}  // namespace ddp::launch
