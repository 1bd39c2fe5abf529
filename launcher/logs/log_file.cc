#include "launcher/logs/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

Descriptor open_for_append(const std::string& path, int how) {
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0644));
}

}  // namespace

void LogFile::open(const std::string& path, Rotation rotation, bool truncate) {
  path_ = path;
  rotation_ = rotation;
  fd_ = open_for_append(path, truncate ? O_TRUNC : 0);
  if (fd_.get() < 0) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot write the log file '{}': {}", path, error_text(errno)));
  }
  struct stat status {};
  size_ = ::fstat(fd_.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  line_begin_ = size_;
}

int LogFile::write(std::string_view text) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, fits(text));
    if (const int error = write_all(part); error != 0) return error;
    if (const auto newline = part.rfind('\n'); newline != std::string_view::npos)
      line_begin_ = size_ - part.size() + newline + 1;
    text.remove_prefix(part.size());
    if (const int error = text.empty() ? 0 : rotate(); error != 0) return error;
  }
  return 0;
}

// How much of the text fits in this file: whole lines, unless one is longer than a file.
std::size_t LogFile::fits(std::string_view text) const {
  if (rotation_.max_bytes == 0 || size_ + text.size() <= rotation_.max_bytes) return text.size();
  const std::size_t room =
      size_ < rotation_.max_bytes ? static_cast<std::size_t>(rotation_.max_bytes - size_) : 0;
  const auto newline = text.substr(0, room).rfind('\n');
  if (newline != std::string_view::npos) return newline + 1;
  return line_begin_ == 0 ? room : 0;
}

int LogFile::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_.get(), text.data(), text.size());
    if (written > 0) {
      size_ += static_cast<std::uint64_t>(written);
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool LogFile::move_aside() const {
  if (rotation_.keep == 0) return ::unlink(path_.c_str()) == 0;
  const auto name = [&](int age) { return age == 0 ? path_ : fmt::format("{}.{}", path_, age); };
  bool moved = false;
  for (int age = rotation_.keep; age > 0; --age) {
    moved = std::rename(name(age - 1).c_str(), name(age).c_str()) == 0;
  }
  return moved;
}

// Returns 0 or the errno of a failed write.
int LogFile::rotate() {
  const bool mid_line = 0 < line_begin_ && line_begin_ < size_;
  const Descriptor reader(mid_line ? ::open(path_.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  Descriptor fresh = move_aside() ? open_for_append(path_, O_EXCL) : Descriptor();
  if (fresh.get() < 0) {
    rotation_.max_bytes = 0;  // better one long file than a lost line
    return 0;
  }
  const Descriptor old = std::exchange(fd_, std::move(fresh));
  const auto begin = std::exchange(line_begin_, 0);
  const auto end = std::exchange(size_, 0);
  if (reader.get() < 0) return 0;
  const int error = copy_from(reader.get(), begin, end);
  // Truncate last: a duplicated line is better than a lost one.
  if (size_ == end - begin) {
    [[maybe_unused]] const int cut = ::ftruncate(old.get(), static_cast<off_t>(begin));
  }
  return error;
}

// Copies less if someone truncated the old file.
int LogFile::copy_from(int reader, std::uint64_t begin, std::uint64_t end) {
  std::array<char, 64 << 10> buffer;
  while (begin < end) {
    const auto wanted = std::min<std::uint64_t>(buffer.size(), end - begin);
    const ssize_t got = ::pread(reader, buffer.data(), wanted, static_cast<off_t>(begin));
    if (got <= 0) break;
    const int error = write_all({buffer.data(), static_cast<std::size_t>(got)});
    if (error != 0) return error;
    begin += static_cast<std::uint64_t>(got);
  }
  return 0;
}

}  // namespace ddp::launch
