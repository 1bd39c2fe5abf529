#include "launcher/base/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::launch {
namespace {

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t fill(Address& address, const BindPlan& plan, int port) {
  const auto network_port = htons(static_cast<in_port_t>(port));
  if (plan.family == AF_INET6) {
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = network_port;
    if (!plan.address.empty()) ::inet_pton(AF_INET6, plan.address.c_str(), &address.v6.sin6_addr);
    return sizeof address.v6;
  }
  address.v4.sin_family = AF_INET;
  address.v4.sin_port = network_port;
  if (!plan.address.empty()) ::inet_pton(AF_INET, plan.address.c_str(), &address.v4.sin_addr);
  return sizeof address.v4;
}

bool prepare(int fd, const BindPlan& plan) {
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // One socket serves both families.
  if (plan.family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  constexpr char kLoopback[] = "lo";
  return !plan.this_machine_only ||
         ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, kLoopback, sizeof kLoopback) == 0;
}

int bind_one(const BindPlan& plan, int port) {
  const int fd = ::socket(plan.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  Address address{};
  const socklen_t size = fill(address, plan, port);
  if (prepare(fd, plan) && ::bind(fd, &address.any, size) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

bool is_loopback_v4(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24U) == 127;
}

}  // namespace

std::vector<BindPlan> bind_plans(const std::string& master_addr) {
  if (is_loopback_v4(master_addr)) return {{AF_INET, master_addr, false}};
  if (master_addr == "::1") return {{AF_INET6, master_addr, false}};
  if (master_addr == "localhost") return {{AF_INET6, "", true}, {AF_INET, "127.0.0.1", false}};
  return {{AF_INET6, "", false}, {AF_INET, "", false}};
}

int bind_socket(const std::vector<BindPlan>& plans, int port) {
  for (const BindPlan& plan : plans) {
    const int fd = bind_one(plan, port);
    // If the port is taken, binding another family would only hide that.
    if (fd >= 0 || errno == EADDRINUSE || (errno == EACCES && !plan.this_machine_only)) return fd;
  }
  return -1;
}

int port_of(int socket) {
  Address address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, &address.any, &size);
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

}  // namespace ddp::launch
