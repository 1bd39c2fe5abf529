// Reads small kernel files in /proc and /sys.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

/// Returns "" if the file cannot be read.
std::string first_line(const std::string& file);

struct ProcessStat {
  char state = '?';  // R, S, D, T, ...; '?': no such process
  pid_t parent = 0;
  bool dying = false;   // exiting, killed by a signal, or dumping core
  int wait_status = 0;  // as waitpid() will return it; 0 until its main thread has ended
};

/// Returns false if /proc is missing or shows another PID namespace, in which our PIDs mean other
/// processes.
bool proc_is_ours();
/// Returns /proc/PID, or a path that never exists if /proc is not ours.
std::string process_folder(pid_t pid);

/// Reads the state of a process or a thread; `folder` is /proc/PID or /proc/PID/task/TID.
ProcessStat read_stat(const std::string& folder);

/// A process's handling of signals; signal N is bit N - 1.
struct SignalMasks {
  unsigned long long blocked = 0;  // by its main thread
  unsigned long long ignored = 0;
  unsigned long long caught = 0;
};
/// Returns nullopt if /proc does not show the process.
std::optional<SignalMasks> read_signal_masks(pid_t pid);

/// Returns the /proc folders of all threads of a process and its descendants.
std::vector<std::string> thread_folders(pid_t pid);

/// CPU accounting of one thread since it started. `waited` is updated only when the thread gets a
/// CPU, not while it waits for one.
struct ThreadTimes {
  std::chrono::nanoseconds ran{};
  std::chrono::nanoseconds waited{};  // for a CPU
  bool ready = false;                 // running, or waiting for a CPU
};
using CpuTimes = std::map<pid_t, ThreadTimes>;  // by thread id
/// Covers the threads of a process and its descendants; empty if the kernel does not report them.
CpuTimes cpu_times(pid_t pid);

/// Returns the proportional set size (PSS) of a process in KiB; 0 if unknown.
long own_memory_kib(pid_t pid);

}  // namespace ddp::launch
