// Chooses the local addresses to bind a port on, and binds it; shared by port reservation and
// listening sockets.
#pragma once

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

/// A socket (close-on-exec, SO_REUSEADDR) bound to `port`, 0 for any free one; -1 with errno.
int bind_socket(const std::vector<BindPlan>& plans, int port);

int port_of(int socket);

}  // namespace ddp::launch
