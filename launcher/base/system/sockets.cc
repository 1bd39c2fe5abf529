#include "launcher/base/system/sockets.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

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

// -1, with the error that was there.
int closed(int fd) {
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
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
  return closed(fd);
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

bool is_loopback(const std::string& address) { return address == "::1" || is_loopback_v4(address); }

bool is_localhost(const std::string& name) {
  return name == "localhost" || name.starts_with("localhost.") || name.ends_with(".localhost") ||
         name.starts_with("ip6-");
}

int bind_socket(const std::vector<BindPlan>& plans, int port) {
  for (const BindPlan& plan : plans) {
    const int fd = bind_one(plan, port);
    // If the port is taken, binding another family would only hide that.
    if (fd >= 0 || errno == EADDRINUSE || (errno == EACCES && !plan.this_machine_only)) return fd;
  }
  return -1;
}

std::string numeric_address(int socket, bool peer) {
  Address address{};
  socklen_t size = sizeof address;
  const auto get = peer ? ::getpeername : ::getsockname;
  if (get(socket, &address.any, &size) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.any.sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &address.v4.sin_addr, text.data(), text.size());
    return text.data();
  }
  const in6_addr& v6 = address.v6.sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    ::inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size());
    return text.data();
  }
  ::inet_ntop(AF_INET6, &v6, text.data(), text.size());
  std::array<char, IF_NAMESIZE> device{};
  if (!IN6_IS_ADDR_LINKLOCAL(&v6) ||
      ::if_indextoname(address.v6.sin6_scope_id, device.data()) == nullptr)
    return text.data();
  return std::string(text.data()) + "%" + device.data();
}

std::optional<SocketAddress> parse_address(const std::string& host, int port) {
  SocketAddress result{};
  Address address{};
  const auto percent = host.find('%');
  if (::inet_pton(AF_INET, host.c_str(), &address.v4.sin_addr) == 1) {
    result.size = fill(address, {AF_INET, host, false}, port);
  } else if (in6_addr bytes{};
             ::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &bytes) == 1) {
    result.size = fill(address, {AF_INET6, host.substr(0, percent), false}, port);
    if (percent != std::string::npos)
      address.v6.sin6_scope_id = ::if_nametoindex(host.substr(percent + 1).c_str());
  } else {
    return std::nullopt;
  }
  result.family = address.any.sa_family;
  static_assert(sizeof address <= sizeof result.bytes);
  std::memcpy(result.bytes, &address, sizeof address);
  return result;
}

int begin_connect(const SocketAddress& address) {
  const int fd = ::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* where = reinterpret_cast<const sockaddr*>(address.bytes);
  if (::connect(fd, where, address.size) == 0 || errno == EINPROGRESS) return fd;
  return closed(fd);
}

int listen_on(const SocketAddress& address) {
  const int fd = ::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* where = reinterpret_cast<const sockaddr*>(address.bytes);
  if (::bind(fd, where, address.size) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  return closed(fd);
}

int listen_on_all(int port) {
  const int fd = listen_on(*parse_address("::", port));
  return fd >= 0 || errno == EADDRINUSE ? fd : listen_on(*parse_address("0.0.0.0", port));
}

int listen_for_peers(const std::string& address) {
  const auto numeric = parse_address(address, 0);
  const int fd = numeric ? listen_on(*numeric) : -1;
  return fd >= 0 ? fd : listen_on_all(0);
}

int port_of(int socket) {
  Address address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, &address.any, &size);
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

}  // namespace ddp::launch
