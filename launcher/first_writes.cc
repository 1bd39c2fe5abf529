#include "launcher/first_writes.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace ddp::launch {

FirstWrites::FirstWrites() : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

// Not by closing: the kernel would make us wait some 10 ms until it has cleared up.
void FirstWrites::forget_all() {
  for (const int watch : watches_) ::inotify_rm_watch(fd_, watch);
  watches_.clear();
  drain();
}

FirstWrites::~FirstWrites() {
  if (fd_ >= 0) ::close(fd_);
}

void FirstWrites::watch(const std::string& file) {
  if (fd_ < 0) return;
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  constexpr std::uint32_t kAppears = IN_CREATE | IN_MOVED_TO | IN_ONESHOT;
  constexpr std::uint32_t kChanges = IN_MODIFY | IN_ATTRIB | IN_ONESHOT;
  watches_.push_back(::inotify_add_watch(fd_, folder.c_str(), kAppears));
  watches_.push_back(::inotify_add_watch(fd_, file.c_str(), kChanges));
}

void FirstWrites::drain() const {
  std::array<char, 4096> events;
  while (::read(fd_, events.data(), events.size()) > 0) {
  }
}

}  // namespace ddp::launch
