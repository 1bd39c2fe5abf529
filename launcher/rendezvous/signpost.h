// Serves the sockets of an agent that does not host the rendezvous: answers other agents' questions
// about the job, and holds nodes that want to follow this agent until it hosts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/acceptor.h"
#include "launcher/base/clock.h"
#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/control_channel.h"

namespace ddp::launch {

/// A node that sent Hello to an agent that may become its host.
struct Follower {
  std::unique_ptr<ControlChannel> channel;
  Hello hello;
};

class Signpost : public PollHandler {
 public:
  explicit Signpost(std::string token) : token_(std::move(token)) {}
  ~Signpost() override;
  Signpost(const Signpost&) = delete;
  Signpost& operator=(const Signpost&) = delete;

  /// Takes ownership of listening, non-blocking sockets.
  void listen(const std::vector<int>& sockets);
  std::vector<int> take_listeners() { return std::exchange(listeners_, {}); }
  /// Sets the answer from now on. Nodes are held while it names no host.
  void say(const Status& status);
  const std::vector<Follower>& followers() const { return followers_; }
  std::vector<Follower> take_followers() { return std::exchange(followers_, {}); }
  /// Returns the latest status of each agent that asked.
  std::vector<Status> take_heard() { return std::exchange(heard_, {}); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  struct Caller {
    std::unique_ptr<ControlChannel> channel;
    Clock::time_point until;
  };

  void accept();
  void serve_callers();
  void serve_followers();
  void send_away(std::unique_ptr<ControlChannel> channel);

  std::string token_;
  std::vector<int> listeners_;
  Acceptor acceptor_{"this node's socket for its peers"};
  Status status_;
  std::vector<Caller> callers_;
  std::vector<Follower> followers_;
  std::vector<Status> heard_;
  Clock::time_point next_beat_{};
};

}  // namespace ddp::launch
