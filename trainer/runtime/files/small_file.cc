#include "trainer/runtime/files/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

std::optional<std::string> read_small_file(const std::string& path, uint64_t most) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd < 0) return std::nullopt;
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw UserError(fmt::format("{}: is {}; give a regular file", path,
                                S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device"));
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > most) {
    throw UserError(fmt::format(
        "{}: has {}, more than the {} that such a file may have; is it the "
        "right file?",
        path, size_text(static_cast<double>(size)), size_text(static_cast<double>(most))));
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw UserError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

std::optional<std::string> read_file_if_present(const std::string& path) {
  auto text = read_small_file(path);
  if (!text && errno != ENOENT && errno != ENOTDIR)
    throw UserError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text;
}

}  // namespace ddp::train
