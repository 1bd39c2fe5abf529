#include "launcher/rendezvous/wire/endpoint_sockets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/base/system/sockets.h"

namespace ddp::launch {

EndpointSockets::~EndpointSockets() { close_all(); }

void EndpointSockets::close_all() {
  for (const int fd : take()) ::close(fd);
}

void EndpointSockets::open(const std::vector<ResolvedEndpoint>& endpoints, bool must_host) {
  taken_ = false;
  places_.clear();
  rank_ = endpoints.size();
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (listen_at(endpoints[i])) rank_ = std::min(rank_, i);
  }
  if (!is_open() && must_host && !taken_) {
    listen_anywhere(endpoints.front());
    rank_ = 0;
  }
  if (!taken_) return;
  close_all();
  places_.clear();
}

// Returns whether it listens there. A name that only this machine resolves to its loopback stands
// for all of its addresses.
bool EndpointSockets::listen_at(const ResolvedEndpoint& resolved) {
  const Endpoint& endpoint = resolved.endpoint;
  const std::vector<std::string>& addresses = resolved.addresses;
  if (addresses.empty()) return false;
  const std::string& first = addresses.front();
  if (first != endpoint.host && is_loopback(first) && !is_localhost(endpoint.host))
    return listen_anywhere(resolved);
  const std::size_t before = sockets_.size();
  for (const std::string& one : addresses) {
    const auto address = parse_address(one, endpoint.port);
    const int fd = address ? listen_on(*address) : -1;
    taken_ = taken_ || (fd < 0 && errno == EADDRINUSE);
    if (fd < 0) continue;
    sockets_.push_back(fd);
    places_.push_back({one, endpoint.port});
  }
  return sockets_.size() > before;
}

// The endpoint's address may be that of a service, or a translated one.
bool EndpointSockets::listen_anywhere(const ResolvedEndpoint& resolved) {
  const Endpoint& endpoint = resolved.endpoint;
  const std::vector<std::string>& addresses = resolved.addresses;
  const int fd = listen_on_all(endpoint.port);
  taken_ = taken_ || (fd < 0 && errno == EADDRINUSE);
  if (fd < 0) return false;
  if (!addresses.empty() && is_loopback(addresses.front())) {
    note_ = fmt::format(
        "'{}' is {} on this machine (see /etc/hosts), where other nodes cannot reach it: the "
        "rendezvous listens on all addresses",
        endpoint.host, addresses.front());
  }
  sockets_.push_back(fd);
  places_.push_back({numeric_address(fd, /*peer=*/false), endpoint.port});
  elsewhere_ = endpoint.host;
  return true;
}

}  // namespace ddp::launch
