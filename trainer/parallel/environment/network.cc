#include "trainer/parallel/environment/network.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

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

/// By one of the kernel's tables, see proc(5); nothing if it cannot be read.
std::optional<bool> listens(const char* table, uint16_t port) {
  std::ifstream file(table);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;  // the heading
  const std::string end = fmt::format(":{:04X}", port);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state;
    fields >> number >> local >> remote >> state;
    if (state == "0A" && local.ends_with(end)) return true;
  }
  return false;
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

void wait_for_listener(uint16_t port, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kBetweenLooks{2};
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    const auto v4 = listens("/proc/self/net/tcp", port);
    const auto v6 = listens("/proc/self/net/tcp6", port);
    if ((!v4 && !v6) || v4.value_or(false) || v6.value_or(false)) return;
    std::this_thread::sleep_for(kBetweenLooks);
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace ddp::train
