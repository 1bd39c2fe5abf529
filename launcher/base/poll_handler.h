// A participant in the agent's single poll loop. Never blocks.
#pragma once

#include <poll.h>

#include <vector>

namespace ddp::launch {

class PollHandler {
 public:
  virtual ~PollHandler() = default;
  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;
  /// Gets every participant's descriptors; its own may be among them.
  virtual void handle(const std::vector<pollfd>& fds) = 0;
};

}  // namespace ddp::launch
