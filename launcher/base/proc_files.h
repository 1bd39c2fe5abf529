// Reads small kernel files in /proc and /sys.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace ddp::launch {

/// Empty when the file cannot be read.
std::string first_line(const std::string& file);

struct ProcessStat {
  char state = '?';  // R, S, D, T, ...; '?': no such process
  pid_t parent = 0;
  bool dying = false;  // exiting, killed by a signal, or dumping core
};

/// False if /proc is missing or shows another PID namespace, where our PIDs mean other processes.
bool proc_is_ours();
/// /proc/PID, or a path that never exists if /proc is not ours.
std::string process_folder(pid_t pid);

/// Of a process or a thread: `folder` is /proc/PID or /proc/PID/task/TID.
ProcessStat read_stat(const std::string& folder);

/// The folders in /proc of all threads of a process and of its descendants.
std::vector<std::string> thread_folders(pid_t pid);

/// Of a thread since it began. While it waits, `waited` stays what it was when it last got a CPU.
struct ThreadTimes {
  std::chrono::nanoseconds ran{};
  std::chrono::nanoseconds waited{};  // for a CPU
  bool ready = false;                 // it runs or waits for a CPU now
};
using CpuTimes = std::map<pid_t, ThreadTimes>;  // by thread id
/// Of the threads of a process and of its descendants; empty where the kernel does not tell.
CpuTimes cpu_times(pid_t pid);

/// Memory of this process, of which pages that it shares count in part (PSS), in KiB; 0: unknown.
long own_memory_kib(pid_t pid);

}  // namespace ddp::launch
