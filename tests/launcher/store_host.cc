// A TcpStoreServer by itself, for peers to talk to: prints its port, then obeys the lines on stdin:
// clear; stats. Ends at the end of stdin.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "launcher/rendezvous/listening_socket.h"
#include "launcher/store/tcp_store_server.h"

namespace {

using ddp::launch::TcpStoreServer;

void accept_all(int listening, TcpStoreServer& server) {
  for (;;) {
    const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    server.adopt(fd);
  }
}

void obey(const std::string& line, TcpStoreServer& server) {
  if (line == "clear") server.clear();
  std::cout << "connections " << server.connections() << " bytes " << server.bytes() << std::endl;
}

// False at the end of stdin.
bool obey_all(std::string& input, TcpStoreServer& server) {
  char buffer[256];
  const ssize_t got = ::read(0, buffer, sizeof buffer);
  if (got <= 0) return false;
  input.append(buffer, static_cast<std::size_t>(got));
  for (std::size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
    obey(input.substr(0, end), server);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const ddp::launch::ListeningSocket listening("127.0.0.1", argc > 1 ? std::atoi(argv[1]) : 0);
  TcpStoreServer server;
  std::cout << "port " << listening.port() << std::endl;
  std::string input;
  for (;;) {
    std::vector<pollfd> fds{{0, POLLIN, 0}, {listening.fd(), POLLIN, 0}};
    server.add_poll_fds(fds);
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    server.handle(fds);
    if (fds[1].revents != 0) accept_all(listening.fd(), server);
    if (fds[0].revents != 0 && !obey_all(input, server)) return 0;
  }
}
