// The socket of a round's store. It listens before any worker starts, so the port is known before
// exec and no connection is refused.
#pragma once

#include <string>

namespace ddp::launch {

class ListeningSocket {
 public:
  /// Listens on the addresses that clients of `master_addr` reach (bind_plans), non-blocking. port
  /// 0: any free one. Throws LaunchError (2) if the port is taken.
  ListeningSocket(const std::string& master_addr, int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  /// Closes connections waiting to be accepted, left from an earlier round on the same port.
  void refuse_waiting() const;

  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace ddp::launch
