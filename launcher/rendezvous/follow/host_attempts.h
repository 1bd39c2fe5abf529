// Connects to places where the host of the rendezvous may be, one after the other, until the
// handshake with one of them is complete.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

class HostAttempts : public PollHandler {
 public:
  explicit HostAttempts(std::string token) : token_(std::move(token)) {}

  /// Tries each place once, for at most `patience`.
  void begin(std::vector<Place> places, std::chrono::milliseconds patience);
  /// Gives up the current place, which is not the host's, and tries the next one.
  void try_another(const std::string& why);
  void stop() { channel_.reset(); }

  /// Whether a connection attempt is in progress; if not, there is no place left to try.
  bool connecting() const { return channel_ != nullptr; }
  /// Returns, once, the channel to the current place after it has opened.
  std::unique_ptr<ControlChannel> take_channel();
  /// Returns the current place's connection if it ended before it was open; else nullptr.
  const ControlChannel* closed() const;
  /// The place that is being tried or was found.
  const Place& present() const { return present_; }
  /// Why the last attempt since begin() failed: "10.0.0.1:29400: no answer"; empty if none has.
  const std::string& problem() const { return problem_; }
  /// Whether nothing listens at the place of the last attempt.
  bool was_refused() const { return refused_; }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Leaves a connection that has closed to the owner, who calls try_another().
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  void try_next();
  void connect();
  void fail(const std::string& why);

  std::string token_;
  std::vector<Place> places_;
  std::size_t next_ = 0;
  std::chrono::milliseconds patience_{0};
  Place present_;
  std::unique_ptr<ControlChannel> channel_;
  Clock::time_point give_up_{};  // on the current place
  std::string problem_;
  bool refused_ = false;
};

}  // namespace ddp::launch
