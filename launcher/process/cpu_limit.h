// Whether the kernel ended a process because of its limit on CPU time (RLIMIT_CPU, ulimit -t).
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::launch {

/// "CPU time limit: ...", or empty if `signal` did not come from it. `pid`: a child that `signal`
/// killed and that is not reaped yet.
std::string cpu_limit_verdict(pid_t pid, int signal);

}  // namespace ddp::launch
