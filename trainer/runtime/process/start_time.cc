#include "trainer/runtime/process/start_time.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "launcher/worker_contract.h"

namespace ddp::train {
namespace {

/// When the machine started, from /proc/stat; 0 when that cannot be read.
std::time_t boot_time() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    long long seconds = 0;
    if (word == "btime" && stat >> seconds) return static_cast<std::time_t>(seconds);
  }
  return 0;
}

/// Field 22 of proc(5)'s stat: the start in clock ticks after boot, or 0. The name of the program,
/// in brackets, may hold anything.
long long start_ticks(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kBefore = 19;
  std::string skipped;
  for (int i = 0; i < kBefore; ++i) fields >> skipped;
  long long ticks = 0;
  fields >> ticks;
  return ticks;
}

/// When the parent process started, or 0.
std::time_t parent_start_time() {
  const long long ticks = start_ticks(std::to_string(::getppid()));
  const long per_second = ::sysconf(_SC_CLK_TCK);
  const std::time_t boot = boot_time();
  if (ticks == 0 || per_second <= 0 || boot == 0) return 0;
  return boot + static_cast<std::time_t>(ticks / per_second);
}

/// When a process that was started early was needed; 0: it was not.
double& needed_at() {
  static double moment = 0.0;
  return moment;
}

double clock_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::time_t run_start_time() {
  static const std::time_t moment = [] {
    const bool launched = std::getenv(launch::kRunId) != nullptr;
    const std::time_t parent = launched ? parent_start_time() : 0;
    return parent != 0 ? parent : std::time(nullptr);
  }();
  return moment;
}

double unix_seconds() { return clock_seconds(CLOCK_REALTIME); }

void count_as_started_now() { needed_at() = unix_seconds(); }

double process_start_unix_seconds() {
  if (needed_at() > 0.0) return needed_at();
  const long long ticks = start_ticks("self");
  const long per_second = ::sysconf(_SC_CLK_TCK);
  const double now = unix_seconds();
  if (ticks == 0 || per_second <= 0) return now;
  const double started = static_cast<double>(ticks) / static_cast<double>(per_second);
  return now - (clock_seconds(CLOCK_BOOTTIME) - started);
}

}  // namespace ddp::train
