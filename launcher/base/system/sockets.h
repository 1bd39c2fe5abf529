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

/// One way to bind: to a single address or to all addresses of a family.
struct BindPlan {
  int family = 0;
  std::string address;             // numeric; empty: every address
  bool this_machine_only = false;  // accept from the loopback device only
  bool operator==(const BindPlan&) const = default;
};

/// Returns the plans to try in order; later ones are for machines without IPv6. Pure.
///   127.x.x.x, ::1   that address only
///   localhost        both families, as clients may resolve it to either; this machine only
///   anything else    every address of both families
std::vector<BindPlan> bind_plans(const std::string& master_addr);

/// Whether `address` is a numeric loopback address: 127.x.x.x or ::1.
bool is_loopback(const std::string& address);
/// Whether `name` means the local machine wherever it is used: localhost, ...
bool is_localhost(const std::string& name);

/// Returns a socket (close-on-exec, SO_REUSEADDR) bound to `port`, or to any free port if it is 0;
/// -1 with errno on failure.
int bind_socket(const std::vector<BindPlan>& plans, int port);

int port_of(int socket);

/// Returns the address of a connected socket's local or peer end, such as "10.0.0.7" or "::1", with
/// IPv4-mapped IPv6 addresses in IPv4 notation; empty if it is not connected.
std::string numeric_address(int socket, bool peer);

/// A numeric address, ready for bind() and connect().
struct SocketAddress {
  alignas(8) unsigned char bytes[128];
  unsigned size = 0;
  int family = 0;
};
/// Returns nullopt if `host` is not numeric. Accepts the scope of a link-local address:
/// fe80::1%eth0.
std::optional<SocketAddress> parse_address(const std::string& host, int port);

/// Returns a non-blocking socket (close-on-exec, TCP_NODELAY) that is connecting; -1 with errno.
int begin_connect(const SocketAddress& address);
/// Returns a non-blocking socket that listens on exactly this address; -1 with errno.
int listen_on(const SocketAddress& address);
/// Listens on all addresses of both families.
int listen_on_all(int port);
/// Listens on a free port of `address`, or of all addresses if it is a name or not of this machine.
int listen_for_peers(const std::string& address);

}  // namespace ddp::launch
