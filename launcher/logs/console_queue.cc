#include "launcher/logs/console_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/messages.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kPipeAtom = 4096;    // a writable pipe takes this much without blocking
constexpr std::size_t kBatch = 256 << 10;  // one write for many lines

}  // namespace

ConsoleQueue::ConsoleQueue(int fd, FileWriter* files)
    : fd_(fd), way_(Way::kCareful), files_(files) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  if (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) {
    way_ = Way::kPlain;  // its offset is shared with others
    const auto write = [fd, error = error_](std::string_view text) {
      int none = 0;
      error->compare_exchange_strong(none, write_fully(fd, text));
      return 0;  // there may be room for what comes next
    };
    if (files_) file_ = FileWriter::open(fd == STDOUT_FILENO ? "stdout" : "stderr", write);
  } else if (S_ISSOCK(status.st_mode)) {
    way_ = Way::kSocket;
  } else {
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    own_ = Descriptor(::open(self.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own_.get() < 0) return;
    fd_ = own_.get();
    way_ = Way::kNonblocking;
  }
}

void ConsoleQueue::append(std::string_view text) {
  queue_ += text;
  if (queue_.size() - tried_ > kBatch) write_some();
}

void ConsoleQueue::append_line(std::string_view prefix, std::string_view line) {
  queue_ += prefix;
  queue_ += line;
  append("\n");
}

void ConsoleQueue::add(std::string_view text) {
  queue_ += text;
  write_some();
}

std::size_t ConsoleQueue::waiting() const {
  return queue_.size() - written_ + (file_ ? files_->waiting(*file_) : 0);
}

long ConsoleQueue::write_once() {
  const std::string_view rest = std::string_view(queue_).substr(written_);
  switch (way_) {
    case Way::kNonblocking:
    case Way::kPlain:
      return ::write(fd_, rest.data(), rest.size());
    case Way::kSocket:
      return ::send(fd_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Way::kCareful:
      break;
  }
  pollfd writable{fd_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return errno = EAGAIN, -1;
  return ::write(fd_, rest.data(), std::min(rest.size(), kPipeAtom));
}

void ConsoleQueue::write_some() {
  if (file_) {
    if (queue_.size() > kBatch / 2) {  // not worth a copy
      files_->append(file_, std::move(queue_));
      queue_ = files_->spare_buffer();
    } else if (!queue_.empty()) {
      files_->append(file_, std::string_view(queue_));
    }
    return drop();
  }
  while (written_ < queue_.size()) {
    const long written = write_once();
    if (written > 0) {
      written_ += static_cast<std::size_t>(written);
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else if (written < 0 && errno != EAGAIN) {
      // EIO: the terminal was closed.
      const bool no_reader =
          errno == EPIPE || errno == ECONNRESET || (errno == EIO && way_ != Way::kPlain);
      reader_has_exited_ = reader_has_exited_ || no_reader;
      if (*error_ == 0 && !no_reader) *error_ = errno;
      written_ = queue_.size();  // nobody will ever read it
    } else {
      break;
    }
  }
  drop_written();
  tried_ = queue_.size();
}

void ConsoleQueue::drop_written() {
  if (written_ < queue_.size() && written_ < std::max(kBatch, queue_.size() / 2)) return;
  queue_.erase(0, written_);
  written_ = 0;
  if (queue_.empty() && queue_.capacity() > kLong) std::string().swap(queue_);
}

void ConsoleQueue::drop() {
  queue_.clear();
  written_ = tried_ = 0;
}

}  // namespace ddp::launch
