// Chooses the local addresses to bind a port on, and binds it; shared by port reservation and
// listening sockets.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

struct Endpoint {
  std::string host;  // may be empty
  int port = 0;
};

/// One way to bind: one address, or all of a family.
struct BindPlan {
  int family = 0;
  std::string address;             // numeric; empty: every address
  bool this_machine_only = false;  // accept from the loopback device only
  bool operator==(const BindPlan&) const = default;
};

/// Tried in order; later ones are for machines without IPv6. Pure.
///   127.x.x.x, ::1   that address only
///   localhost        both families, as clients may resolve it to either; this machine only
///   anything else    every address of both families
std::vector<BindPlan> bind_plans(const std::string& master_addr);

/// A numeric address of this machine only: 127.x.x.x, ::1.
bool is_loopback(const std::string& address);
/// A name that means this machine only, wherever it is used: localhost, ...
bool is_localhost(const std::string& name);

/// A socket (close-on-exec, SO_REUSEADDR) bound to `port`, 0 for any free one; -1 with errno.
int bind_socket(const std::vector<BindPlan>& plans, int port);

int port_of(int socket);

/// Of a connected socket's own end or of the other one: "10.0.0.7", "::1"; IPv4 addresses that are
/// mapped to IPv6 are shown as IPv4. Empty: not connected.
std::string numeric_address(int socket, bool peer);

/// A numeric address, ready for bind() and connect(); nullopt: `host` is not one. The scope of a
/// link-local address may be given: fe80::1%eth0.
struct SocketAddress {
  alignas(8) unsigned char bytes[128];
  unsigned size = 0;
  int family = 0;
};
std::optional<SocketAddress> parse_address(const std::string& host, int port);

/// A non-blocking socket (close-on-exec, no delay) on which connect() was called; -1 with errno.
int begin_connect(const SocketAddress& address);
/// A non-blocking socket that listens on exactly this address; -1 with errno.
int listen_on(const SocketAddress& address);
/// The same on all addresses of both families.
int listen_on_all(int port);
/// The same on a free port of the address; on all if it is a name, or no address of this machine.
int listen_for_peers(const std::string& address);

}  // namespace ddp::launch
