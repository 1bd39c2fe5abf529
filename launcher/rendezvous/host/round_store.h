// Provides the socket at which clients of the workers' store connect, round by round. Every node
// that may become a round's first has one; the agent of the first node serves the clients.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

class RoundStore : public PollHandler {
 public:
  /// `shared_port`: the rendezvous's port, whose host forwards the store's clients with adopt();
  /// 0: each round has its own port. `rank0`: rank 0 hosts the store, on a port reserved for it.
  RoundStore(int shared_port, bool rank0) : shared_port_(shared_port), rank0_(rank0) {}

  /// Returns the store's port for the next round, in case this node is the first. Throws
  /// LaunchError.
  int prepare(const std::string& own_address);
  /// The socket at which that round's clients arrive (store/store_service.h), open until the next
  /// prepare() or close(); -1: rank 0 hosts the store.
  int source() const { return source_.get(); }
  /// Takes ownership of an accepted, non-blocking connection from which nothing has been read.
  void adopt(int fd);
  /// Call when the round is over on all nodes, or when it begins and this node is not the first.
  void close();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  void pass_on();

  int shared_port_;
  bool rank0_;
  Descriptor source_;
  Descriptor entrance_;             // shared port: descriptors passed in arrive at source_
  std::deque<Descriptor> waiting_;  // connections that entrance_ has no room for yet
  Descriptor held_;                 // rank 0's port
};

}  // namespace ddp::launch
