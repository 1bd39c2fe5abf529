#include "launcher/first_writes.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace ddp::launch {

FirstWrites::FirstWrites() : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FirstWrites::forget_all() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
}

FirstWrites::~FirstWrites() {
  if (fd_ >= 0) ::close(fd_);
}

void FirstWrites::watch(const std::string& file) const {
  if (fd_ < 0) return;
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  ::inotify_add_watch(fd_, folder.c_str(), IN_CREATE | IN_MOVED_TO | IN_ONESHOT);
  ::inotify_add_watch(fd_, file.c_str(), IN_MODIFY | IN_ATTRIB | IN_ONESHOT);
}

void FirstWrites::drain() const {
  std::array<char, 4096> events;
  while (::read(fd_, events.data(), events.size()) > 0) {
  }
}

}  // namespace ddp::launch
