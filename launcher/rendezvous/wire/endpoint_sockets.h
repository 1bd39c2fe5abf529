// Listens at endpoints that are addresses of this machine, so that its agent may host the
// rendezvous.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/wire/endpoint_lookup.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

class EndpointSockets {
 public:
  EndpointSockets() = default;
  ~EndpointSockets();
  EndpointSockets(const EndpointSockets&) = delete;
  EndpointSockets& operator=(const EndpointSockets&) = delete;

  /// Tries all endpoints. `must_host`: even if none is an address of this machine. Opens nothing if
  /// another agent of this machine listens at one of them.
  void open(const std::vector<ResolvedEndpoint>& endpoints, bool must_host);
  /// Whether another program of this machine listens at an endpoint.
  bool taken() const { return taken_; }
  bool is_open() const { return !sockets_.empty(); }
  /// Returns, once, the sockets.
  std::vector<int> take() { return std::exchange(sockets_, {}); }

  /// Places of the sockets, and the number of endpoints before the first of them.
  const std::vector<Place>& places() const { return places_; }
  std::size_t rank() const { return rank_; }
  /// The endpoint's name, if other nodes reach this agent there and not at the address of its
  /// socket; else empty.
  const std::string& elsewhere() const { return elsewhere_; }
  /// Returns, once, a line for the user about where it listens.
  std::string take_note() { return std::exchange(note_, {}); }

 private:
  void close_all();
  bool listen_at(const ResolvedEndpoint& endpoint);
  bool listen_anywhere(const ResolvedEndpoint& endpoint);

  std::vector<int> sockets_;
  std::vector<Place> places_;
  std::size_t rank_ = 0;
  bool taken_ = false;
  std::string elsewhere_;
  std::string note_;
};

}  // namespace ddp::launch
