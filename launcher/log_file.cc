#include "launcher/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "launcher/console.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

int open_for_append(const std::string& path, int how) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0644);
}

}  // namespace

void LogFile::open(const std::string& path, Rotation rotation, bool truncate) {
  close();
  path_ = path;
  rotation_ = rotation;
  error_.clear();
  fd_ = open_for_append(path, truncate ? O_TRUNC : 0);
  if (fd_ < 0) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot write the log file '{}': {}", path, error_text(errno)));
  }
  struct stat status {};
  size_ = ::fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool LogFile::write(std::string_view text) {
  if (!error_.empty()) return true;  // said once
  while (!text.empty()) {
    const std::size_t part = fits(text);
    if (part > 0 && !write_all(text.substr(0, part))) return false;
    text.remove_prefix(part);
    if (!text.empty()) rotate();
  }
  return true;
}

// How much of the text still belongs into this file: whole lines, unless one is longer than a file.
std::size_t LogFile::fits(std::string_view text) const {
  if (rotation_.max_bytes == 0 || size_ + text.size() <= rotation_.max_bytes) return text.size();
  const std::size_t room =
      size_ < rotation_.max_bytes ? static_cast<std::size_t>(rotation_.max_bytes - size_) : 0;
  const auto newline = text.substr(0, room).rfind('\n');
  if (newline != std::string_view::npos) return newline + 1;
  return size_ == 0 ? room : 0;
}

bool LogFile::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written > 0) {
      size_ += static_cast<std::uint64_t>(written);
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno != EINTR) {
      error_ = error_text(errno);
      return false;
    }
  }
  return true;
}

void LogFile::rotate() {
  const auto name = [&](int age) { return age == 0 ? path_ : fmt::format("{}.{}", path_, age); };
  bool moved = rotation_.keep == 0 && ::unlink(path_.c_str()) == 0;
  for (int age = rotation_.keep; age > 0; --age) {
    moved = std::rename(name(age - 1).c_str(), name(age).c_str()) == 0;
  }
  const int fresh = moved ? open_for_append(path_, O_EXCL) : -1;
  if (fresh < 0) {
    rotation_.max_bytes = 0;  // rather one long file than a lost line
    return;
  }
  ::close(fd_);
  fd_ = fresh;
  size_ = 0;
}

void LogFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int LogFile::release() { return std::exchange(fd_, -1); }

}  // namespace ddp::launch
