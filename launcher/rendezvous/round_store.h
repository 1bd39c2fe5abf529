// Where the clients of the workers' store come in, for one round after the other, on each node that
// may be the round's first: the agent of that node serves them.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/port_reservation.h"

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
  /// That round's clients come through this socket (store/store_service.h); -1: rank 0 hosts the
  /// store. Open until the next prepare() or close().
  int source() const { return source_; }
  /// An accepted, non-blocking connection of which nothing was read.
  void adopt(int fd);
  /// The round is over on all nodes, or begins and this node is not the first.
  void close();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  void pass_on();

  int shared_port_;
  bool rank0_;
  int source_ = -1;
  int entrance_ = -1;        // shared port: what is passed into it comes out of source_
  std::deque<int> waiting_;  // connections that entrance_ has no room for yet
  std::optional<PortReservation> reserved_;
};

}  // namespace ddp::launch
