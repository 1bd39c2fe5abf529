// Small reads of the kernel's own files, as /proc and /sys hold them.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::launch {

/// Empty when the file cannot be read.
std::string first_line(const std::string& file);

struct ProcessStat {
  char state = '?';  // R, S, D, T, ...; '?': there is no such process any more
  pid_t parent = 0;
  bool dying = false;  // it exits, was killed by a signal, or leaves a core dump
};

/// False: /proc is missing, or shows another PID namespace, in which our numbers mean others.
bool proc_is_ours();
/// /proc/PID; a folder that never exists when /proc is not ours.
std::string process_folder(pid_t pid);

/// Of a process or a thread: `folder` is /proc/PID or /proc/PID/task/TID.
ProcessStat read_stat(const std::string& folder);

}  // namespace ddp::launch
