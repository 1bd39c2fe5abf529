// Accepts connections. While it cannot, as when no descriptor is left, new ones stay in the
// kernel's queue; as their listening sockets would keep waking the poll loop, it skips them for a
// while.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/base/clock.h"

namespace ddp::launch {

class Acceptor {
 public:
  /// `place`: the listener's name in the warning, such as "the rendezvous".
  explicit Acceptor(std::string place) : place_(std::move(place)) {}

  /// Returns a connection (non-blocking, close-on-exec); -1 if there is none or accepting is
  /// paused.
  int accept(int listener);
  /// Time until which accept() returns -1 and the listening sockets must not be polled.
  std::optional<Clock::time_point> rests_until() const { return rests_until_; }
  /// Call at that time. Returns whether the pause has just ended.
  bool wake();
  /// Returns a line for the user, once; empty: none.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  void rest(int error);

  std::string place_;
  std::optional<Clock::time_point> rests_until_;
  bool warned_ = false;
  std::string warning_;
};

}  // namespace ddp::launch
