#include "launcher/hang/first_writes.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace ddp::launch {

FirstWrites::FirstWrites() : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

// Closing instead would block for some 10 ms while the kernel cleans up.
void FirstWrites::forget_all() {
  for (const auto& [path, watch] : watches_) ::inotify_rm_watch(fd(), watch);
  watches_.clear();
  drain();
}

void FirstWrites::watch(const std::string& file) {
  if (fd() < 0) return;
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  add(folder, IN_CREATE | IN_MOVED_TO | IN_ONESHOT);
  add(file, IN_MODIFY | IN_ATTRIB | IN_ONESHOT);
}

void FirstWrites::add(const std::string& path, unsigned events) {
  const int watch = ::inotify_add_watch(fd(), path.c_str(), events);
  if (watch >= 0) watches_[path] = watch;
}

void FirstWrites::drain() const {
  std::array<char, 4096> events;
  while (::read(fd(), events.data(), events.size()) > 0) {
  }
}

}  // namespace ddp::launch
