#include "launcher/process/cpu_limit.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

namespace ddp::launch {
namespace {

// The kernel enforces the limit by ticks; the clock is exact.
constexpr double kTolerance = 0.5;

// Excludes its children, which have limits of their own.
double own_cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

}  // namespace

std::string cpu_limit_verdict(pid_t pid, int signal) {
  rlimit limit{};
  if ((signal != SIGKILL && signal != SIGXCPU) || ::prlimit(pid, RLIMIT_CPU, nullptr, &limit) != 0)
    return "";
  // With SIGXCPU the kernel adds a second to the soft limit.
  const rlim_t seconds = signal == SIGKILL                 ? limit.rlim_max
                         : limit.rlim_cur == RLIM_INFINITY ? RLIM_INFINITY
                                                           : limit.rlim_cur - 1;
  if (seconds == RLIM_INFINITY || own_cpu_seconds(pid) + kTolerance < static_cast<double>(seconds))
    return "";
  return fmt::format("CPU time limit: the kernel ended it after {} s (ulimit -t)", seconds);
}

}  // namespace ddp::launch
