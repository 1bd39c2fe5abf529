// Liveness probes between ranks over TCP, independent of what the ranks compute.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {

/// A one-shot event whose descriptor can be polled.
class EndEvent {
 public:
  EndEvent();

  void raise() const;
  /// Returns true as soon as it is raised, false after `time`.
  bool wait_for(std::chrono::milliseconds time) const;
  int fd() const { return fd_; }

 private:
  Descriptor fd_;
};

/// Closes each incoming connection as a reply, from a thread of its own. For a stopped process the
/// kernel still accepts connections, but nothing closes them.
class LifeSign {
 public:
  /// Listens at `address` (numeric). If it is empty or listening fails, port() is 0.
  explicit LifeSign(const std::string& address);
  ~LifeSign();
  LifeSign(const LifeSign&) = delete;
  LifeSign& operator=(const LifeSign&) = delete;

  uint16_t port() const { return port_; }

 private:
  void answer();

  EndEvent end_;
  Descriptor listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

/// Returns whether the process at `address` replies within `patience`; retries while it is
/// unreachable. Returns false at once if `end` is raised, or if nothing listens any more at a
/// loopback address: that process has ended.
bool gives_sign_of_life(const std::string& address, uint16_t port,
                        std::chrono::milliseconds patience, const EndEvent& end);

}  // namespace ddp::train
