// Queries agents repeatedly about the job, each over its own connection. Distinguishes an agent
// that has exited from an unreachable one: once nothing listens there, its machine refuses the
// connection.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

class Inquiry : public PollHandler {
 public:
  enum class Found {
    kNothing,  // not yet
    kRefused,  // nothing listens there
    kSilence,  // no reply in time
    kAnswer,   // `status`
  };
  struct Finding {
    Place place;
    Found found = Found::kNothing;
    Status status{};
    std::optional<Clock::time_point> gone{};  // time of the first refusal: that agent has exited
  };

  Inquiry(const std::vector<Place>& places, Status question, std::string token,
          std::chrono::milliseconds patience);

  /// In the order of the places.
  const std::vector<Finding>& findings() const { return findings_; }
  /// Queries only the first `most` agents that do not refuse, and others once those are slow.
  void limit(std::size_t most) { limit_ = most; }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  struct Caller {
    std::unique_ptr<ControlChannel> channel{};
    bool asked = false;
    Clock::time_point next{};   // when to ask, or to give up
    Clock::time_point since{};  // last reply, or first query
  };

  void ask(std::size_t i);
  void listen(std::size_t i);
  void note(std::size_t i, Found found);
  void rest(std::size_t i, std::chrono::milliseconds pause);
  std::size_t asked() const;

  std::vector<Finding> findings_;
  std::vector<Caller> callers_;
  Status question_;
  std::string token_;
  std::chrono::milliseconds patience_;
  Clock::time_point began_;
  Clock::time_point turn_;  // when the last handle() began
  std::size_t limit_ = SIZE_MAX;
};

}  // namespace ddp::launch
