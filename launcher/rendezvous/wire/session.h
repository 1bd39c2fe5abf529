// Prevents the loss of messages between a node and its host with a connection: messages that the
// peer has not confirmed are resent after a reconnect.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

class Session {
 public:
  /// Whether a message belongs to the session; others concern only the connection.
  static bool counts(const ControlMessage& message) {
    return !std::holds_alternative<Hello>(message) && !std::holds_alternative<Alive>(message) &&
           !std::holds_alternative<Status>(message) && !std::holds_alternative<Welcome>(message) &&
           !std::holds_alternative<Refused>(message);
  }
  void sent(const ControlMessage& message) {
    if (counts(message)) sent(std::make_shared<const std::string>(to_json_text(message)));
  }
  /// Records a sent message that counts, as text.
  void sent(std::shared_ptr<const std::string> text) { unconfirmed_.push_back(std::move(text)); }
  void receive(const ControlMessage& message) { received_ += counts(message) ? 1 : 0; }
  long long received() const { return received_; }
  /// Drops the messages up to the `count` that the peer has received.
  void confirm(long long count) {
    const auto known = std::clamp<long long>(count - confirmed_, 0, std::ssize(unconfirmed_));
    unconfirmed_.erase(unconfirmed_.begin(), unconfirmed_.begin() + known);
    confirmed_ += known;
  }
  const std::deque<std::shared_ptr<const std::string>>& unconfirmed() const { return unconfirmed_; }

 private:
  std::deque<std::shared_ptr<const std::string>> unconfirmed_;  // one for all that got the same
  long long confirmed_ = 0;
  long long received_ = 0;
};

}  // namespace ddp::launch
