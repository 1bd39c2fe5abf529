// "Do you still run?", asked and answered over TCP, apart from what the ranks compute.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace ddp::train {

/// A condition that polls wait for, raised once.
class EndEvent {
 public:
  EndEvent();
  ~EndEvent();
  EndEvent(const EndEvent&) = delete;
  EndEvent& operator=(const EndEvent&) = delete;

  void raise() const;
  /// True at once when raised, false after `time`.
  bool wait_for(std::chrono::milliseconds time) const;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Closes each incoming connection as a reply, from a thread of its own. For a stopped process the
/// kernel still accepts connections, but nothing closes them.
class LifeSign {
 public:
  /// Listens at `address` (numeric). Without one, or where it cannot, port() is 0.
  explicit LifeSign(const std::string& address);
  ~LifeSign();
  LifeSign(const LifeSign&) = delete;
  LifeSign& operator=(const LifeSign&) = delete;

  uint16_t port() const { return port_; }

 private:
  void answer();

  EndEvent end_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

/// Whether the process that answers at `address` does so within `patience`; asks again as long as
/// it cannot be reached. False at once when `end` is raised, or when no process listens any more at
/// a loopback address: that process has ended.
bool gives_sign_of_life(const std::string& address, uint16_t port,
                        std::chrono::milliseconds patience, const EndEvent& end);

}  // namespace ddp::train
