#include "trainer/runtime/process/cpu_flags.h"

#include <fstream>

namespace ddp::train {

std::string cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features"))
      return line.substr(line.find(':') + 1);
  }
  return "";
}

bool has_flag(std::string_view flags, std::string_view flag) {
  for (std::size_t at = flags.find(flag); at != std::string_view::npos;
       at = flags.find(flag, at + 1)) {
    const std::size_t end = at + flag.size();
    if ((at == 0 || flags[at - 1] == ' ') && (end == flags.size() || flags[end] == ' '))
      return true;
  }
  return false;
}

}  // namespace ddp::train
