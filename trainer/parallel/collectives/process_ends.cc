#include "trainer/parallel/collectives/process_ends.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace ddp::train {

std::unique_ptr<ProcessEnds> ProcessEnds::watch(const std::vector<pid_t>& processes) {
  Descriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (stop < 0) return nullptr;
  std::unique_ptr<ProcessEnds> ends(new ProcessEnds(std::move(stop)));
  for (const pid_t process : processes) {
    // Debian 11's glibc has no function for it.
    ends->watched_.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (ends->watched_.back() < 0) return nullptr;
  }
  return ends;
}

ProcessEnds::ProcessEnds(Descriptor stop) : stop_(std::move(stop)) {}

ProcessEnds::~ProcessEnds() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void ProcessEnds::start(Ended ended) {
  ended_ = std::move(ended);
  thread_ = std::thread([this] { look(); });
}

void ProcessEnds::look() {
  std::vector<pollfd> polled = {{stop_, POLLIN, 0}};
  for (const Descriptor& fd : watched_) polled.push_back({fd, POLLIN, 0});
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled.front().revents != 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;  // poll() leaves it out
      polled[i].revents = 0;
      ended_(i - 1);
    }
  }
}

}  // namespace ddp::train
