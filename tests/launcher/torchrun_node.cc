// One node of a static job among torchrun's, without workers: prints "ranks OFFSET WORLD
// ROLE_OFFSET ROLE_WORLD", enters the exit barrier at a line on stdin and prints "ended" behind it.
// Node 0 serves the store.   torchrun_node ADDRESS PORT NODE_RANK NNODES LOCAL_WORLD_SIZE ROLE
// RUN_ID
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/listening_socket.h"
#include "launcher/rendezvous/torchrun_static.h"
#include "launcher/store/tcp_store_client.h"
#include "launcher/store/tcp_store_server.h"

using namespace ddp::launch;

namespace {

struct Host {
  explicit Host(int port) : listening("127.0.0.1", port) {}

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      server.adopt(fd);
    }
  }
  // Others may still ask whether the barrier is open. Our own connection stays.
  void serve_until_others_have_gone() {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (server.connections() > 1 && Clock::now() < deadline) {
      std::vector<pollfd> fds;
      server.add_poll_fds(fds);
      ::poll(fds.data(), fds.size(), 100);
      server.handle(fds);
    }
  }

  ListeningSocket listening;
  TcpStoreServer server;
};

int fail(const std::string& why) {
  std::cerr << "error: " << why << std::endl;
  return 1;
}

int run(TcpStoreClient& store, TorchrunExchange& exchange, Host* host) {
  bool told = false, input_open = true;
  while (!exchange.all_ended()) {
    for (auto& request : exchange.take_requests()) store.ask(std::move(request));
    std::vector<pollfd> fds{{input_open ? 0 : -1, POLLIN, 0}};
    fds.push_back({host ? host->listening.fd() : -1, POLLIN, 0});
    store.add_poll_fds(fds);
    if (host) host->server.add_poll_fds(fds);
    if (::poll(fds.data(), fds.size(), store.deadline() ? 20 : -1) < 0) continue;
    if (host) host->accept_all();
    if (host) host->server.handle(fds);
    store.handle(fds);
    while (const auto answer = store.take()) exchange.hear(*answer);
    if (!exchange.problem().empty()) return fail(exchange.problem());
    if (store.state() == TcpStoreClient::State::Lost) return fail(store.problem());
    if (exchange.ranks() && !told) {
      const auto& ranks = *exchange.ranks();
      std::cout << "ranks " << ranks.rank_offset << " " << ranks.world_size << " "
                << ranks.role_rank_offset << " " << ranks.role_world_size << std::endl;
      told = true;
    }
    char line[64];
    if (input_open && fds[0].revents != 0) {
      input_open = ::read(0, line, sizeof line) > 0;
      exchange.enter_exit_barrier();
    }
  }
  std::cout << "ended" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  TorchrunNode node;
  node.node_rank = std::atoi(argv[3]);
  node.nnodes = std::atoi(argv[4]);
  node.local_world_size = std::atoi(argv[5]);
  node.role = argv[6];
  node.run_id = argv[7];
  const int port = std::atoi(argv[2]);
  const auto host = node.node_rank == 0 ? std::make_unique<Host>(port) : nullptr;
  TcpStoreClient store(argv[1], port);
  TorchrunExchange exchange(node);
  const int code = run(store, exchange, host.get());
  if (host) host->serve_until_others_have_gone();
  return code;
}
