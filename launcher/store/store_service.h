// The workers' store of one round. Its clients arrive at a listening socket or, if the store shares
// the port of the rendezvous, as connections passed over a Unix socket (base/system/descriptors.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/acceptor.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/store/tcp_store_server.h"

namespace ddp::launch {

class StoreService : public PollHandler {
 public:
  /// `source`: either of these sockets, non-blocking, not owned.
  explicit StoreService(int source);

  std::size_t connections() const { return server_.connections(); }
  /// Returns a line for the user; empty: none.
  std::string take_note();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  int next_client();

  int source_;
  bool listening_ = false;  // source_ is a listening socket
  bool ended_ = false;      // no further clients will arrive
  TcpStoreServer server_;
  Acceptor acceptor_{"the workers' store"};
};

/// Serves until `control`, a SOCK_SEQPACKET socket, is at end-of-file. Each message sent over
/// `control` is a line for the user.
void serve_store(int source, int control);

}  // namespace ddp::launch
