#include "launcher/rendezvous/wire/round_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/loopback.h"
#include "tests/support/skip.h"

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/local_rendezvous.h"

namespace ddp::launch {
namespace {

#ifndef IP_LOCAL_PORT_RANGE
constexpr int IP_LOCAL_PORT_RANGE = 51;  // NOLINT(readability-identifier-naming): the kernel's name
#endif

int new_socket(bool reuse) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = reuse ? 1 : 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return fd;
}

sockaddr_in address_of(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  return address;
}

bool bind_to(int fd, int port) {
  const sockaddr_in address = address_of(port);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

TEST_CASE("a store with SO_REUSEADDR can listen on the port that is held") {
  const Descriptor held = hold_port(0);
  const int store = new_socket(true);
  CHECK(bind_to(store, port_of(held.get())));
  CHECK(::listen(store, 8) == 0);
  ::close(store);
}

TEST_CASE("the kernel gives a held port to nobody who asks for any port") {
  const Descriptor held = hold_port(0);
  // A range of one port: whoever asks for any port within it gets this one or none.
  const auto port = static_cast<std::uint32_t>(port_of(held.get()));
  const auto range = port << 16 | port;
  for (const bool reuse : {false, true}) {
    const int fd = new_socket(reuse);
    if (::setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) == 0) {
      CHECK_FALSE(bind_to(fd, 0));
    } else {
      test::say_skipped("this kernel has no IP_LOCAL_PORT_RANGE");
    }
    ::close(fd);
  }
}

TEST_CASE("a port that someone listens on is one line with the remedy") {
  const int other = new_socket(false);
  REQUIRE(bind_to(other, 0));
  REQUIRE(::listen(other, 1) == 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(other, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  CHECK_THROWS_WITH(hold_port(ntohs(address.sin_port)),
                    Catch::StartsWith("--master-port=" + port + ": Address already in use"));
  ::close(other);
}

TEST_CASE("each round has a new port, unless one was asked for") {
  LocalRendezvous free_port("127.0.0.1", 0, false, {});
  const int first = free_port.next_round().master_port;
  CHECK(free_port.next_round().master_port != first);
  LocalRendezvous fixed("127.0.0.1", test::unused_port(), false, {});
  const int asked = fixed.next_round().master_port;
  CHECK(fixed.next_round().master_port == asked);
}

}  // namespace
}  // namespace ddp::launch
