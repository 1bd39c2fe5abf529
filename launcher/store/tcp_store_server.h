// The workers' store, served with torch's TCPStore protocol, so that no process needs LibTorch for
// it and it outlives rank 0. Does not listen: StoreService accepts connections.
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

/// One descriptor in the poll loop, however many clients there are. What is malformed or too much
/// closes the connection that it came by, no other.
class TcpStoreServer : public PollHandler {
 public:
  explicit TcpStoreServer(const StoreLimits& limits = {});
  ~TcpStoreServer() override;
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// Owns `fd` from now on: an accepted, non-blocking connection of which nothing has been
  /// consumed.
  void adopt(int fd);

  std::size_t connections() const { return clients_.size(); }
  /// Contents and buffers.
  std::size_t bytes() const { return contents_.bytes() + buffered_; }
  /// A line for the user, once a client had to go because there was no room; empty: none.
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
    std::size_t counted = 0;  // its part of buffered_
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
