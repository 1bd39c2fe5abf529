// A participant in the agent's single poll loop. Never blocks.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "launcher/base/clock.h"

namespace ddp::launch {

class PollHandler {
 public:
  virtual ~PollHandler() = default;
  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;
  /// Receives the descriptors of all participants; its own may be among them.
  virtual void handle(const std::vector<pollfd>& fds) = 0;
  /// When to call handle() even if no descriptor is ready; nullopt: never.
  virtual std::optional<Clock::time_point> deadline() const { return std::nullopt; }
  /// Whether the loop should return to the agent.
  virtual bool has_news() const { return false; }
};

/// Whether poll() has reported anything about the descriptor.
bool is_ready(const std::vector<pollfd>& fds, int fd);

/// Waits until a descriptor is ready or, unless it is nullopt, until `wake`. If a signal interrupts
/// it, no descriptor counts as ready. Throws LaunchError "<what>: ..." on failure.
void poll_until(std::vector<pollfd>& fds, std::optional<Clock::time_point> wake, const char* what);

/// Serves this participant alone until `done` returns true or `limit` has passed.
void serve_until(PollHandler& handler, Clock::time_point limit, const std::function<bool()>& done);

}  // namespace ddp::launch
