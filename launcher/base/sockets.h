// Which addresses of this machine a port is taken on, and a socket that is bound there. Shared by
// those who only keep a port and those who listen.
#pragma once

#include <string>
#include <vector>

namespace ddp::launch {

struct Endpoint {
  std::string host;  // may be empty
  int port = 0;
};

/// One way to bind: an address of a family, or all of them.
struct BindPlan {
  int family = 0;
  std::string address;             // numeric; empty: every address
  bool this_machine_only = false;  // whatever the address: connections over the loopback device
  bool operator==(const BindPlan&) const = default;
};

/// Tried in order; a later one is for machines without IPv6 or without the means. Pure.
///   127.x.x.x, ::1   that address alone
///   localhost        both families, since a client may look it up as either; this machine only
///   anything else    every address of both families
std::vector<BindPlan> bind_plans(const std::string& master_addr);

/// A socket (close-on-exec, SO_REUSEADDR) bound to `port`, 0 for any free one; -1 with errno.
int bind_socket(const std::vector<BindPlan>& plans, int port);

int port_of(int socket);

}  // namespace ddp::launch
