#include "trainer/runtime/start_time.h"

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

/// When the parent process started, or 0. Its name, in brackets, may hold anything.
std::time_t parent_start_time() {
  std::ifstream file("/proc/" + std::to_string(::getppid()) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kBefore = 19;  // fields 3 to 21 of proc(5); the next is the start in clock ticks
  std::string skipped;
  for (int i = 0; i < kBefore; ++i) fields >> skipped;
  long long ticks = 0;
  const long per_second = ::sysconf(_SC_CLK_TCK);
  const std::time_t boot = boot_time();
  if (!(fields >> ticks) || per_second <= 0 || boot == 0) return 0;
  return boot + static_cast<std::time_t>(ticks / per_second);
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

}  // namespace ddp::train
