// Serves the sockets of an agent that does not host the rendezvous: replies to other agents'
// queries about the job, and holds nodes that want to follow this agent until it hosts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/lobby.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

class Signpost : public PollHandler {
 public:
  /// `patience`: how long a held node may be silent.
  Signpost(const std::string& token, std::chrono::milliseconds patience)
      : lobby_("this node's socket for its peers", token), patience_(patience) {}

  /// Takes ownership of listening, non-blocking sockets.
  void listen(const std::vector<int>& sockets) { lobby_.listen(sockets); }
  std::vector<int> take_listeners() { return lobby_.take_listeners(); }
  /// Sets the reply from now on. Nodes are held while it has no host, unless another agent holds
  /// this one: then they are sent there, as that agent decides.
  void say(const Status& status, const std::optional<Place>& holder = std::nullopt);
  const std::vector<Follower>& followers() const { return followers_; }
  std::vector<Follower> take_followers() { return std::exchange(followers_, {}); }
  /// Returns the latest status of each agent that asked.
  std::vector<Status> take_heard() { return lobby_.take_heard(); }
  /// Returns a line for the user; empty if there is none.
  std::string take_note() { return lobby_.take_note(); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  void receive_newcomers();
  void serve_followers();

  Lobby lobby_;
  std::chrono::milliseconds patience_;
  Status last_word_;  // for nodes that are not held
  std::vector<Follower> followers_;
  Clock::time_point next_beat_{};
};

}  // namespace ddp::launch
