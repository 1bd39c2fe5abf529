#include "launcher/base/system/memory_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/base/messages.h"

namespace ddp::launch {

int memory_file(std::string_view text) {
  const int fd = ::memfd_create("text", MFD_CLOEXEC);
  if (fd >= 0) write_fully(fd, text);
  return fd;
}

std::string text_of(int memory_file) {
  struct stat status {};
  if (::fstat(memory_file, &status) != 0) return "";
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t got = ::pread(memory_file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace ddp::launch
