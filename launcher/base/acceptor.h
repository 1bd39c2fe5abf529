// Accepts connections. Those that come while no descriptor is left stay in the kernel's queue:
// their listening sockets would wake a loop again and again, so they rest for a while.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/base/clock.h"

namespace ddp::launch {

class Acceptor {
 public:
  /// `place`, for the warning: "the rendezvous".
  explicit Acceptor(std::string place) : place_(std::move(place)) {}

  /// A connection, non-blocking and closed on exec; -1: none for now, or at rest.
  int accept(int listener);
  /// Until then accept() takes nothing, and the listening sockets are not to be polled.
  std::optional<Clock::time_point> rests_until() const { return rests_until_; }
  /// To be called at that time. True: the rest is over just now.
  bool wake();
  /// A line for the user, once; empty: none.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  void rest(int error);

  std::string place_;
  std::optional<Clock::time_point> rests_until_;
  bool warned_ = false;
  std::string warning_;
};

}  // namespace ddp::launch
