// Serves the workers' store over torch's TCPStore protocol without LibTorch. Does not listen:
// StoreService accepts the connections.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/base/poll_handler.h"
#include "launcher/store/key_values.h"
#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

/// Takes one descriptor in the poll loop, however many clients there are. A malformed or oversized
/// request closes its own connection and no other.
class TcpStoreServer : public PollHandler {
 public:
  explicit TcpStoreServer(const StoreLimits& limits = {});
  ~TcpStoreServer() override;
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// Takes ownership of `fd`: an accepted, non-blocking connection of which nothing was read.
  void adopt(int fd);

  std::size_t connections() const { return clients_.size(); }
  /// Memory used for contents and buffers.
  std::size_t bytes() const { return contents_.bytes() + buffered_; }
  /// Returns a line for the user after a client was disconnected for lack of room; empty: none.
  std::string take_note() { return std::exchange(note_, {}); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  using Peer = KeyValues::Peer;
  struct Client {
    int fd = -1;
    RequestParser parser;
    std::string output;
    std::size_t sent = 0;  // of output
    std::uint32_t events = 0;
    std::size_t counted = 0;  // its share of buffered_
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

  StoreLimits limits_;
  KeyValues contents_;
  int epoll_ = -1;
  Peer last_peer_ = 0;
  std::unordered_map<Peer, Client> clients_;
  std::size_t buffered_ = 0;
  std::vector<KeyValues::Answer> answers_;
  std::vector<char> received_;
  bool told_no_room_ = false;
  std::string note_;
};

}  // namespace ddp::launch
