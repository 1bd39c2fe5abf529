// The workers' store of one round after the other, served by the agent of the round's first node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/acceptor.h"
#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/port_reservation.h"
#include "launcher/store/tcp_store_server.h"

namespace ddp::launch {

class RoundStore : public PollHandler {
 public:
  /// `shared_port`: of the rendezvous, whose host passes the store's clients on with adopt(); 0:
  /// each round has a port of its own. `rank0`: rank 0 hosts the store, on a port held free for it.
  RoundStore(int shared_port, bool rank0) : shared_port_(shared_port), rank0_(rank0) {}
  ~RoundStore() override;
  RoundStore(const RoundStore&) = delete;
  RoundStore& operator=(const RoundStore&) = delete;

  /// For the coming round, should this node be the first: the store's port. Throws LaunchError.
  int prepare(const std::string& own_address);
  /// The round begins, and this node is not the first.
  void not_needed();
  /// An accepted, non-blocking connection of which nothing was read.
  void adopt(int fd) { server_.adopt(fd); }
  /// The round is over on all nodes.
  void clear() { server_.clear(); }
  std::size_t connections() const { return server_.connections(); }

  /// A line for the user; empty: none.
  std::string take_note() { return acceptor_.take_warning(); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override { return acceptor_.rests_until(); }

 private:
  void close_listener();

  int shared_port_;
  bool rank0_;
  TcpStoreServer server_;
  Acceptor acceptor_{"the workers' store"};
  int listener_ = -1;
  std::optional<PortReservation> reserved_;
};

}  // namespace ddp::launch
