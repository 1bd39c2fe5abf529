#include "launcher/hang/stalled_console.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "launcher/base/system/proc_files.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

// "pipe:[4711]", "/dev/pts/0"
fs::path file_behind(const std::string& folder, unsigned long fd) {
  std::error_code error;
  return fs::read_symlink(folder + "/fd/" + std::to_string(fd), error);
}

bool is_writing_to_console(const std::string& thread) {
  const std::string call = first_line(thread + "/syscall");
  if (call.empty()) return true;
  long number = -1;
  unsigned long fd = 0;
  if (std::sscanf(call.c_str(), "%ld %lx", &number, &fd) != 2) return false;  // "running"
  if (number != SYS_write && number != SYS_writev) return false;
  const fs::path file = file_behind(thread, fd);
  const std::string self = "/proc/self";
  return file == file_behind(self, STDOUT_FILENO) || file == file_behind(self, STDERR_FILENO);
}

}  // namespace

bool console_is_stalled() {
  pollfd streams[] = {{STDOUT_FILENO, POLLOUT, 0}, {STDERR_FILENO, POLLOUT, 0}};
  return ::poll(streams, 2, 0) >= 0 && (streams[0].revents == 0 || streams[1].revents == 0);
}

bool waits_for_console(pid_t pid) {
  const auto threads = thread_folders(pid);
  return std::any_of(threads.begin(), threads.end(), is_writing_to_console);
}

}  // namespace ddp::launch
