// Serves the workers' store over torch's TCPStore protocol without LibTorch. Does not listen:
// StoreService accepts the connections.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/store/key_values.h"
#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

/// Needs one descriptor in the poll loop, however many clients there are. A malformed or oversized
/// request closes its own connection and no other. Connections that have made no request yet may
/// take half of the descriptors, for 30 s each.
class TcpStoreServer : public PollHandler {
 public:
  explicit TcpStoreServer(const StoreLimits& limits = {});

  /// Takes ownership of `fd`: an accepted, non-blocking connection from which nothing was read.
  void adopt(int fd);

  std::size_t connections() const { return clients_.size(); }
  /// Memory used for contents and buffers.
  std::size_t bytes() const { return contents_.bytes() + buffered_; }
  /// Returns a line for the user after a client was disconnected for lack of memory; empty: none.
  std::string take_note() { return std::exchange(note_, {}); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  using Peer = KeyValues::Peer;
  struct Client {
    Descriptor fd;
    RequestParser parser;
    std::string output;
    std::size_t sent = 0;  // of output
    std::uint32_t events = 0;
    std::size_t counted = 0;  // its share of buffered_
    bool known = false;       // has made a request
    std::size_t unread() const { return output.size() - sent; }
  };

  void serve(Peer peer, std::uint32_t events);
  bool receive(Client& client);
  bool answer_requests(Peer peer, Client& client);
  RequestParser::Next carry_out(Peer peer, Client& client);
  void deliver(KeyValues::Answer& answer, Peer current);
  bool flush(Client& client);
  bool settle(Peer peer, Client& client);
  void drop(Peer peer);
  void tell_no_room();
  void drop_oldest_newcomer();
  void drop_late(Clock::time_point now);

  StoreLimits limits_;
  KeyValues contents_;
  Descriptor epoll_;
  Peer last_peer_ = 0;
  std::unordered_map<Peer, Client> clients_;
  std::size_t max_newcomers_;
  std::size_t newcomers_ = 0;                                // clients that are not known
  std::deque<std::pair<Clock::time_point, Peer>> arrivals_;  // of those, by time, and some others
  std::size_t buffered_ = 0;
  std::vector<KeyValues::Answer> answers_;
  std::vector<char> received_;
  bool told_no_room_ = false;
  std::string note_;
};

}  // namespace ddp::launch
