// The authority of a job without an external service: the nodes of the last round elect the next
// host (Succession) over their own sockets. A mandate serves instead of a granted epoch, and
// Coordinator::has_lost_mandate() deposes a host. Endpoints decide who hosts first (Newcomer).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/rendezvous/authority.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/round/succession.h"

namespace ddp::launch {

class Election : public Authority {
 public:
  explicit Election(const GroupSettings& settings) : settings_(settings) {}

  void seek(std::optional<Loss> loss, const Status& status) override;
  Step next(const View& view) override;
  void avoid(const Place& place) override;
  void settle(bool) override { vote_.reset(); }
  std::string take_note() override { return std::exchange(note_, {}); }
  std::string despair() const override;

  void hand_down(JobHistory& history) const override;
  std::string deposed() const override { return ""; }
  void resign() override {}
  void end_job() override {}

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  struct Vote {
    Succession succession;
    Inquiry inquiry;
    Clock::time_point since;
    std::chrono::milliseconds patience;
    std::string text;  // why the host was lost
    bool noted = false;
    bool forgot_noted = false;
    bool alone = false;
  };

  Clock::time_point alone_at() const { return vote_->since + 2 * vote_->patience; }
  std::chrono::milliseconds timeout() const;
  std::string reason() const;

  GroupSettings settings_;
  std::optional<Vote> vote_;
  Clock::time_point turn_{};  // last handle()
  std::string note_;
};

}  // namespace ddp::launch
