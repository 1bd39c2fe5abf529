// Where the workers' store listens: on what MASTER_ADDR means, and nowhere else.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/host/round_store.h"
#include "launcher/rendezvous/local_rendezvous.h"
#include "launcher/rendezvous/wire/round_port.h"
#include "tests/support/loopback.h"

namespace ddp::launch {
namespace {

bool can_connect(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  const int fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  sockaddr_in v4_address{};
  v4_address.sin_family = AF_INET;
  v4_address.sin_port = htons(static_cast<in_port_t>(port));
  ::inet_pton(AF_INET, address.c_str(), &v4_address.sin_addr);
  sockaddr_in6 v6_address{};
  v6_address.sin6_family = AF_INET6;
  v6_address.sin6_port = v4_address.sin_port;
  ::inet_pton(AF_INET6, address.c_str(), &v6_address.sin6_addr);
  const int result =
      v6 ? ::connect(fd, reinterpret_cast<sockaddr*>(&v6_address), sizeof v6_address)
         : ::connect(fd, reinterpret_cast<sockaddr*>(&v4_address), sizeof v4_address);
  ::close(fd);
  return result == 0;
}

bool machine_has_ipv6() {
  const int fd = bind_socket({{AF_INET6, "::1", false}}, 0);
  ::close(fd);
  return fd >= 0;
}

TEST_CASE("a loopback address is the only one that is bound") {
  CHECK(bind_plans("127.0.0.1") == std::vector<BindPlan>{{AF_INET, "127.0.0.1", false}});
  CHECK(bind_plans("127.1.2.3") == std::vector<BindPlan>{{AF_INET, "127.1.2.3", false}});
  CHECK(bind_plans("::1") == std::vector<BindPlan>{{AF_INET6, "::1", false}});
}

TEST_CASE("localhost is bound for this machine only, any other name for all") {
  for (const auto& plan : bind_plans("localhost")) {
    CHECK((plan.this_machine_only || plan.address == "127.0.0.1"));
  }
  for (const char* name : {"", "10.0.0.1", "node7.cluster", "1270.0.0.1"}) {
    for (const auto& plan : bind_plans(name)) CHECK(plan.address.empty());
  }
}

TEST_CASE("whoever connects before the store is served is not refused") {
  const Descriptor socket = listen_for_workers("127.0.0.1", 0);
  CHECK(port_of(socket.get()) > 0);
  CHECK(can_connect("127.0.0.1", port_of(socket.get())));
  if (machine_has_ipv6()) CHECK_FALSE(can_connect("::1", port_of(socket.get())));
}

TEST_CASE("localhost is reached by both of its addresses") {
  const Descriptor socket = listen_for_workers("localhost", 0);
  CHECK(can_connect("127.0.0.1", port_of(socket.get())));
  if (machine_has_ipv6()) CHECK(can_connect("::1", port_of(socket.get())));
}

TEST_CASE("a port where someone listens cannot be the store's") {
  const Descriptor other = listen_for_workers("127.0.0.1", 0);
  for (const char* address : {"127.0.0.1", "localhost", "somewhere"}) {
    CHECK_THROWS_AS(listen_for_workers(address, port_of(other.get())), LaunchError);
  }
}

TEST_CASE("each round's store has a socket of its own, unless a port was asked for") {
  LocalRendezvous any("127.0.0.1", 0, true, {});
  const RendezvousInfo first = any.next_round();
  CHECK(first.agent_store);
  CHECK(port_of(first.store_socket) == first.master_port);
  const RendezvousInfo second = any.next_round();
  CHECK(second.master_port != first.master_port);
  LocalRendezvous fixed("127.0.0.1", test::unused_port(), true, {});
  const int socket = fixed.next_round().store_socket;
  CHECK(fixed.next_round().store_socket == socket);
}

TEST_CASE("connections that wait at a port of an earlier round are closed") {
  LocalRendezvous fixed("127.0.0.1", test::unused_port(), true, {});
  const RendezvousInfo round = fixed.next_round();
  CHECK(can_connect("127.0.0.1", round.master_port));
  CHECK(fixed.next_round().store_socket == round.store_socket);
  CHECK(::accept4(round.store_socket, nullptr, nullptr, SOCK_NONBLOCK) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("descriptors pass from one process to another, one message each") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  CHECK(receive_descriptor(ends[1]) == -1);
  CHECK(errno == EAGAIN);
  const Descriptor socket = listen_for_workers("127.0.0.1", 0);
  CHECK(pass_descriptors(ends[0], {socket.get()}));
  const int received = receive_descriptor(ends[1]);
  REQUIRE(received >= 0);
  CHECK(port_of(received) == port_of(socket.get()));
  ::close(received);
  REQUIRE(::send(ends[0], "x", 1, 0) == 1);
  CHECK(receive_descriptor(ends[1]) == -1);
  CHECK(errno == EPROTO);
  ::close(ends[0]);
  CHECK(receive_descriptor(ends[1]) == -1);
  CHECK(errno == 0);
  CHECK_FALSE(pass_descriptors(ends[1], {socket.get()}));
  ::close(ends[1]);
}

// A connection that its client can tell from others.
struct Connection {
  int client = -1;
  int server = -1;

  Connection() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    client = ends[0];
    server = ends[1];
  }
  ~Connection() { ::close(client); }
  Connection(const Connection&) = delete;
  bool closed() const {
    char byte;
    return ::recv(client, &byte, 1, 0) == 0;
  }
};

TEST_CASE("a store at the port of the rendezvous gets all of a round's clients, and of no other") {
  RoundStore store(29500, false);
  const Connection early, late;
  store.adopt(early.server);
  CHECK(early.closed());
  CHECK(store.prepare("127.0.0.1") == 29500);
  std::vector<std::unique_ptr<Connection>> clients;
  for (int i = 0; i < 1000; ++i) {  // more than a Unix socket holds
    clients.push_back(std::make_unique<Connection>());
    store.adopt(clients.back()->server);
  }
  int came = 0;
  for (std::vector<pollfd> none; came < 1000; store.handle(none)) {
    for (int fd; (fd = receive_descriptor(store.source())) >= 0; ++came) ::close(fd);
    REQUIRE(errno == EAGAIN);
  }
  for (const auto& client : clients) CHECK(client->closed());
  store.close();
  store.adopt(late.server);
  CHECK(late.closed());
}

}  // namespace
}  // namespace ddp::launch
