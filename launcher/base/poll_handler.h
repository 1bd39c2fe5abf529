// Something that takes part in the agent's one poll loop. It never waits.
#pragma once

#include <poll.h>

#include <vector>

namespace ddp::launch {

class PollHandler {
 public:
  virtual ~PollHandler() = default;
  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;
  /// Gets the descriptors of all members; those of its own may be among them.
  virtual void handle(const std::vector<pollfd>& fds) = 0;
};

}  // namespace ddp::launch
