#include "trainer/metrics/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {

AppendFile::AppendFile(std::string path)
    : path_(std::move(path)),
      // Without O_NONBLOCK this would wait until a FIFO has a reader.
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (fd_ < 0) fail("open", errno);
  struct stat status {};
  if (::fstat(fd_, &status) == 0) size_ = status.st_size;
  if (S_ISFIFO(status.st_mode)) fail("append to", ESPIPE);
}

void AppendFile::append(std::string_view record) {
  std::size_t done = 0;
  while (done < record.size()) {
    const ssize_t got = ::write(fd_, record.data() + done, record.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = errno;
      // A torn record would spoil the next one, too.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, size_);
      fail("write", error);
    }
    done += static_cast<std::size_t>(got);
  }
  size_ += static_cast<int64_t>(record.size());
}

void AppendFile::truncate(int64_t size) {
  if (::ftruncate(fd_, size) != 0) fail("shorten", errno);
  size_ = size;
}

void AppendFile::fail(const char* what, int error) const {
  throw RunError(fmt::format("cannot {} {}: {}", what, path_, std::strerror(error)));
}

}  // namespace ddp::train
