#include "launcher/base/system/new_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

namespace ddp::launch {

mode_t under_umask(mode_t mode) {
  const mode_t mask = ::umask(077);  // there is no other way to read it
  ::umask(mask);
  return mode & ~mask;
}

std::string safe_file_name(std::string name) {
  for (char& c : name) c = c == '/' || c == '\0' ? '_' : c;
  return name.substr(0, 100);
}

int create_temporary_file(const std::string& path, std::string& name) {
  name = path + ".tmpXXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);  // exclusive, with mode 0600
  if (fd >= 0) ::fchmod(fd, under_umask(0644));
  return fd;
}

}  // namespace ddp::launch
