#include "launcher/base/system/poll_handler.h"

#include <algorithm>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

bool is_ready(const std::vector<pollfd>& fds, int fd) {
  return std::any_of(fds.begin(), fds.end(),
                     [&](const pollfd& polled) { return polled.fd == fd && polled.revents != 0; });
}

void poll_until(std::vector<pollfd>& fds, std::optional<Clock::time_point> wake, const char* what) {
  const timespec limit = wake ? time_until(*wake) : timespec{};
  if (::ppoll(fds.data(), fds.size(), wake ? &limit : nullptr, nullptr) >= 0) return;
  // Most likely more descriptors than the limit, which someone lowered meanwhile.
  if (errno != EINTR) throw LaunchError(kExitFailed, what + (": " + error_text(errno)));
  for (pollfd& fd : fds) fd.revents = 0;
}

void serve_until(PollHandler& handler, Clock::time_point limit, const std::function<bool()>& done) {
  while (!done() && Clock::now() < limit) {
    std::vector<pollfd> fds;
    handler.add_poll_fds(fds);
    const timespec left = time_until(std::min(limit, handler.deadline().value_or(limit)));
    ::ppoll(fds.data(), fds.size(), &left, nullptr);
    handler.handle(fds);
  }
}

}  // namespace ddp::launch
