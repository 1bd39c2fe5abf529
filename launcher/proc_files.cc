#include "launcher/proc_files.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace ddp::launch {

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
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return {};
  return {line[name_end + 2], std::atoi(line.c_str() + name_end + 4)};
}

}  // namespace ddp::launch
