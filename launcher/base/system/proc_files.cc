#include "launcher/base/system/proc_files.h"

#include <unistd.h>
#include <cstdio>

#include <cstdlib>
#include <fstream>

#include "launcher/base/system/path_search.h"

namespace ddp::launch {
namespace {

// PF_EXITING, PF_DUMPCORE and PF_SIGNALED from the kernel's sched.h; their values have never
// changed.
constexpr unsigned kDying = 0x4 | 0x200 | 0x400;

}  // namespace

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

bool proc_is_ours() {
  char self[16] = {};
  return ::readlink("/proc/self", self, sizeof self - 1) > 0 && std::atoi(self) == ::getpid();
}

std::string process_folder(pid_t pid) {
  return "/proc/" + std::to_string(proc_is_ours() ? pid : 0);
}

ProcessStat read_stat(const std::string& folder) {
  const std::string line = first_line(folder + "/stat");
  const auto name_end = line.rfind(')');  // the name may hold anything, also ')' and spaces
  ProcessStat stat;
  unsigned flags = 0;
  if (name_end == std::string::npos ||
      std::sscanf(line.c_str() + name_end + 1, " %c %d %*d %*d %*d %*d %u", &stat.state,
                  &stat.parent, &flags) != 3) {
    return {};
  }
  stat.dying = (flags & kDying) != 0;
  stat.wait_status = std::atoi(line.c_str() + line.rfind(' '));  // the last field
  return stat;
}

std::optional<SignalMasks> read_signal_masks(pid_t pid) {
  std::ifstream status(process_folder(pid) + "/status");
  SignalMasks masks;
  for (std::string line; std::getline(status, line);) {
    const auto read = [&line](const char* format, unsigned long long& mask) {
      return std::sscanf(line.c_str(), format, &mask) == 1;
    };
    read("SigBlk: %llx", masks.blocked);
    read("SigIgn: %llx", masks.ignored);
    if (read("SigCgt: %llx", masks.caught)) return masks;  // the last one
  }
  return std::nullopt;
}

std::vector<std::string> thread_folders(pid_t pid) {
  std::vector<std::string> folders;
  for (const auto& thread : paths_in(process_folder(pid) + "/task")) {
    folders.push_back(thread.string());
    std::ifstream children(folders.back() + "/children");
    for (pid_t child = 0; children >> child;) {
      const auto more = thread_folders(child);
      folders.insert(folders.end(), more.begin(), more.end());
    }
  }
  return folders;
}

CpuTimes cpu_times(pid_t pid) {
  CpuTimes times;
  for (const std::string& thread : thread_folders(pid)) {
    long long ran = 0;
    long long waited = 0;
    if (std::ifstream(thread + "/schedstat") >> ran >> waited) {
      times[std::atoi(thread.c_str() + thread.rfind('/') + 1)] = {std::chrono::nanoseconds(ran),
                                                                  std::chrono::nanoseconds(waited),
                                                                  read_stat(thread).state == 'R'};
    }
  }
  return times;
}

long own_memory_kib(pid_t pid) {
  std::ifstream rollup(process_folder(pid) + "/smaps_rollup");
  for (std::string word; rollup >> word;) {
    long kib = 0;
    if (word == "Pss:" && rollup >> kib) return kib;
  }
  return 0;
}

}  // namespace ddp::launch
