#include "launcher/proc_files.h"

#include <cstdlib>
#include <fstream>

namespace ddp::launch {

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

ProcessStat read_stat(const std::string& folder) {
  const std::string line = first_line(folder + "/stat");
  const auto name_end = line.rfind(')');  // the name may hold anything, also ')' and spaces
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return {};
  return {line[name_end + 2], std::atoi(line.c_str() + name_end + 4)};
}

}  // namespace ddp::launch
