#include "trainer/parallel/environment/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {
namespace {

// Connecting a datagram socket only chooses a route.
std::string source_address(const addrinfo& target) {
  const Descriptor fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  std::array<char, NI_MAXHOST> text{};
  const bool known =
      ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
      ::getsockname(fd, address, &size) == 0 &&
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? text.data() : "";
}

}  // namespace

std::string local_address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    if (const std::string address = source_address(*target); !address.empty()) return address;
  }
  return "";
}

}  // namespace ddp::train
